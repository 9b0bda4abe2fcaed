//! All chance of a run comes from here, and from one seed.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Random(StdRng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0.random()
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// An index of something that has `count` parts; 0 of nothing.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        if count < 2 { 0 } else { self.0.random_range(0..count) }
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// A pause of a process without memory, up to eight times its mean.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn around(&mut self, mean: Time) -> Time {
        let uniform: f64 = self.0.random_range(f64::EPSILON..1.0);
        ((mean as f64) * (-uniform.ln()).min(8.0)) as Time
    }

    /// One of them, as heavy as it is likely.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> Option<T> {
        let total = choices.iter().map(|(weight, _)| weight).sum::<u32>();
        let mut rest = self.0.random_range(0..total.max(1));
        choices.iter().find_map(|&(weight, choice)| match rest.checked_sub(weight) {
            Some(left) => {
                rest = left;
                None
            }
            None => Some(choice),
        })
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.index(choices.len())).copied()
    }
}
