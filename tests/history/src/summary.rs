//! What a history is made of: a run in which nothing happened proves nothing.

use crate::{Call, History, Outcome};

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Acquires.
    pub acquires: usize,
    /// Acquires that were granted, those that a verify found included.
    pub granted: usize,
    /// Acquires whose wait ran out.
    pub timed_out: usize,
    /// Acquires that were refused.
    pub busy: usize,
    /// Grants that the client gave back by itself, had they come.
    pub given_back: usize,
    /// Releases that were confirmed.
    pub released: usize,
    /// Releases that found the lock not held.
    pub not_held: usize,
    /// Verifies that found an acquire without the lock.
    pub not_acquired: usize,
    /// Requests of which nothing was sent.
    pub not_sent: usize,
    /// Acquires whose outcome is unknown.
    pub indeterminate: usize,
    /// Releases and verifies whose outcome is unknown.
    pub unconfirmed: usize,
    /// Requests that never returned.
    pub unreturned: usize,
}

impl History {
    /// Counts what happened.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for op in &self.ops {
            let acquires = matches!(op.call, Call::Acquire { .. });
            summary.acquires += usize::from(acquires);
            *match op.outcome() {
                Some(Outcome::Granted { .. }) => &mut summary.granted,
                Some(Outcome::TimedOut) => &mut summary.timed_out,
                Some(Outcome::Busy) => &mut summary.busy,
                Some(Outcome::GivenBack) => &mut summary.given_back,
                Some(Outcome::Released) => &mut summary.released,
                Some(Outcome::NotHeld { .. }) => &mut summary.not_held,
                Some(Outcome::NotAcquired) => &mut summary.not_acquired,
                Some(Outcome::NotSent) => &mut summary.not_sent,
                Some(Outcome::Indeterminate) if acquires => &mut summary.indeterminate,
                Some(Outcome::Indeterminate) => &mut summary.unconfirmed,
                None => &mut summary.unreturned,
            } += 1;
        }
        summary
    }
}
