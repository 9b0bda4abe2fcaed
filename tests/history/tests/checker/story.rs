//! A correct history, to be changed in one place.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom as _;
use ticketing_history::{Call, Event, History, Nanos, Op, Outcome, Returned, Rule, Rules, SECOND, check};

use crate::world::Setting;

/// How many histories each mutation must have been made in.
const MADE: usize = 200;

/// Applies a mutation to correct histories; wherever it can be made, the rule must fire.
#[track_caller]
pub(crate) fn fires(rule: Rule, mutate: impl Fn(&mut Story) -> Option<()>) {
    let mut made = 0;
    for seed in 0.. {
        assert!(seed < 50_000, "made only {made} times");
        let setting = Setting::of(seed);
        let history = setting.run();
        let mut rules = setting.rules();
        if rule == Rule::GroundlessBusy {
            rules.busy = false;
        }
        let before = check(&history, &rules);
        let mut story = Story { history, rules, random: StdRng::seed_from_u64(seed) };
        if before.iter().any(|violation| violation.rule == rule) || mutate(&mut story).is_none() {
            continue;
        }
        let violations = check(&story.history, &story.rules);
        let seen = violations.iter().any(|violation| violation.rule == rule);
        assert!(seen, "{rule:?} did not fire, but {violations:#?}\n{setting:?}");
        made += 1;
        if made == MADE {
            return;
        }
    }
}

pub(crate) struct Story {
    pub(crate) history: History,
    pub(crate) rules: Rules,
    pub(crate) random: StdRng,
}

/// A grant of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) place: usize,
    pub(crate) invoked: Nanos,
    pub(crate) returned: Nanos,
    pub(crate) token: u64,
    /// As long as nobody releases it.
    pub(crate) ends: Nanos,
}

impl Story {
    pub(crate) fn op(&mut self, place: usize) -> &mut Op {
        &mut self.history.ops[place]
    }

    pub(crate) fn places(&self, wanted: impl Fn(&Op) -> bool) -> Vec<usize> {
        (0..self.history.ops.len()).filter(|&place| wanted(&self.history.ops[place])).collect()
    }

    pub(crate) fn pick<T>(&mut self, from: impl IntoIterator<Item = T>) -> Option<T> {
        from.into_iter().choose(&mut self.random)
    }

    pub(crate) fn grants(&self) -> Vec<Grant> {
        let grant = |(place, op): (usize, &Op)| {
            let (Call::Acquire { lease_secs, .. }, Some(returned)) = (&op.call, op.returned) else {
                return None;
            };
            let Outcome::Granted { token, ends } = returned.outcome else { return None };
            let ends = ends.unwrap_or(op.invoked + u64::from(*lease_secs) * SECOND / 1000 * 995);
            Some(Grant { place, invoked: op.invoked, returned: returned.at, token, ends })
        };
        self.history.ops.iter().enumerate().filter_map(grant).collect()
    }

    pub(crate) fn key(&self, grant: &Grant) -> &str {
        &self.history.ops[grant.place].key
    }

    /// Grants that are surely in force for a while after their return, and until when.
    pub(crate) fn holds(&self) -> Vec<(Grant, Nanos)> {
        let forgets = self.history.notes.iter().any(|note| note.event == Event::Forgot);
        if forgets {
            return Vec::new();
        }
        let hold = |grant: Grant| {
            let releases = self.releases(grant.token);
            let released = releases.iter().map(|&place| self.history.ops[place].invoked).min();
            let end = released.map_or(grant.ends, |released| released.min(grant.ends));
            (grant.returned < end).then_some((grant, end))
        };
        self.grants().into_iter().filter_map(hold).collect()
    }

    pub(crate) fn releases(&self, token: u64) -> Vec<usize> {
        self.places(|op| matches!(op.call, Call::Release { token: of } if of == token))
    }

    /// Whether this acquire may have been granted without anybody's knowledge.
    pub(crate) fn may_be_silent(op: &Op) -> bool {
        matches!(op.call, Call::Acquire { .. })
            && matches!(op.outcome(), None | Some(Outcome::Indeterminate | Outcome::GivenBack))
    }

    pub(crate) fn set_outcome(&mut self, place: usize, outcome: Outcome) {
        self.op(place).returned.as_mut().unwrap().outcome = outcome;
    }

    pub(crate) fn set_token(&mut self, grant: &Grant, new: u64) {
        let ends = Some(grant.ends);
        self.set_outcome(grant.place, Outcome::Granted { token: new, ends });
    }

    pub(crate) fn add(&mut self, key: &str, call: Call, invoked: Nanos, at: Nanos, outcome: Outcome) {
        let id = self.history.ops.len() as u64 + 1_000_000;
        let returned = Some(Returned { at, outcome });
        self.history.ops.push(Op {
            id,
            process: 99,
            lane: None,
            key: key.to_owned(),
            call,
            invoked,
            returned,
        });
    }

    pub(crate) fn greatest_token(&self) -> Option<u64> {
        self.grants().iter().map(|grant| grant.token).max()
    }
}
