//! The whole judgement, and what a run may add to it.

use crate::facts::Facts;
use crate::report::Findings;
use crate::{History, Nanos, SECOND, Violation, rules};

/// What is promised of a run beside safety. Safety is always promised.
///
/// The default is for a service that is left alone on a busy machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Within what time a request arrives, is answered when its wait is over or its turn
    /// has come, and its answer is read: with faults, longer than the longest of them.
    /// `None`: nothing is promised about that.
    pub late_answer: Option<Nanos>,
    /// How long after the end of its lease a lock may still be held: with faults, longer
    /// than the longest time without a majority, or with a leader that nobody hears.
    /// `None`: nothing is promised about that.
    pub late_expiry: Option<Nanos>,
    /// An acquire may be refused without having been cancelled: a limit was in reach, a
    /// leader lost its office, a server was told to stop.
    pub busy: bool,
    /// All clients are in the history, so tokens have no gap that it does not explain.
    pub dense: bool,
    /// By how many millionths the clocks of clients and servers may differ in speed.
    pub drift_ppm: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let late = Some(15 * SECOND);
        Self { late_answer: late, late_expiry: late, busy: false, dense: true, drift_ppm: 0 }
    }
}

/// Says which promises the history breaks: at most twenty violations a rule, sorted by rule.
///
/// Takes time of the order of n log n. Of a history that makes no sense (see
/// [`Rule::Malformed`](crate::Rule::Malformed)) nothing else is said.
#[must_use]
pub fn check(history: &History, rules: &Rules) -> Vec<Violation> {
    let mut found = Findings::new(history);
    rules::form::check(history, &mut found);
    if found.is_empty() {
        let facts = Facts::of(history, *rules);
        rules::answers::check(&facts, &mut found);
        rules::tokens::check(&facts, &mut found);
        rules::gaps::check(&facts, &mut found);
        rules::holds::check(&facts, &mut found);
        rules::releases::check(&facts, &mut found);
        rules::verdicts::check(&facts, &mut found);
        rules::queue::check(&facts, &mut found);
        rules::stuck::check(&facts, &mut found);
    }
    found.finish()
}
