//! What the clients see, as a history: for a second judge, who knows nothing of the
//! simulation and believes nothing but what clients saw.

use ticketing_history::{Call, Event, History, Lane, Note, Op, Outcome, Returned, Rules, Violation, check};

use crate::ledger::Ledger;
use crate::time::Time;

/// More than what any two clocks of a run differ by, in millionths.
const DRIFT_PPM: u32 = 13_000;

#[derive(Debug, Default)]
pub(crate) struct Record {
    history: History,
    /// Requests that were handed to a session.
    sent: u64,
}

impl Record {
    /// A request begins; returns its place. An acquire has its owner for an id.
    pub(crate) fn begins(
        &mut self,
        now: Time,
        client: (u8, u32),
        key: &str,
        call: Call,
        id: Option<u64>,
    ) -> usize {
        let place = self.history.ops.len();
        // No owner has this bit.
        let id = id.unwrap_or(1 << 63 | place as u64);
        let process = u64::from(client.0) << 32 | u64::from(client.1);
        let key = key.to_owned();
        self.history.ops.push(Op { id, process, lane: None, key, call, invoked: now, returned: None });
        place
    }

    /// A session has it now.
    pub(crate) fn submitted(&mut self, place: usize, connection: u64) {
        self.sent += 1;
        if let Some(op) = self.history.ops.get_mut(place) {
            op.lane = Some(Lane { connection, order: self.sent });
        }
    }

    /// A request that is recorded ends. The first word counts: what comes late to one
    /// that was given up comes to nobody.
    pub(crate) fn ends(&mut self, now: Time, place: Option<usize>, outcome: Outcome) {
        if let Some(op) = place.and_then(|place| self.history.ops.get_mut(place)) {
            op.returned.get_or_insert(Returned { at: now, outcome });
        }
    }

    pub(crate) fn died(&mut self, now: Time, client: (u8, u32)) {
        let process = u64::from(client.0) << 32 | u64::from(client.1);
        self.history.notes.push(Note { from: now, to: now, event: Event::Died { process } });
    }

    /// The second judgement. Nothing is promised about times, which the ledger knows
    /// better: it knows the faults.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let rules =
            Rules { late_answer: None, late_expiry: None, busy: true, dense: true, drift_ppm: DRIFT_PPM };
        check(&self.history, &rules)
    }

    pub(crate) fn judge(&self, ledger: &mut Ledger) {
        if let Some(violation) = self.violations().first() {
            ledger.fail("History", violation.to_string());
        }
    }
}
