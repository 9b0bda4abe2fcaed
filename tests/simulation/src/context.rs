//! What everything in a run shares.

use crate::cluster::Members;
use crate::events::{ClientEvent, Event, NodeEvent, Queue, WorldEvent};
use crate::ledger::Ledger;
use crate::network::Network;
use crate::plan::Plan;
use crate::random::Random;
use crate::record::Record;
use crate::time::Time;
use crate::trace::{Line, Trace};

/// Everything but the processes themselves.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) now: Time,
    pub(crate) plan: Plan,
    pub(crate) queue: Queue,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) members: Members,
    pub(crate) ledger: Ledger,
    pub(crate) record: Record,
    pub(crate) trace: Trace,
    /// Faults have ended.
    pub(crate) calm: bool,
    /// Nothing is left of them either: all that is asked now must be answered.
    pub(crate) fair: bool,
    /// Nothing new is begun.
    pub(crate) quiet: bool,
    /// Clients are in haste.
    pub(crate) burst: bool,
    /// How likely a leader refuses a write without having appended it.
    pub(crate) refusal: f64,
}

impl Context {
    pub(crate) fn note(&mut self, line: Line) {
        self.trace.note(self.now, line);
    }

    pub(crate) fn node_in(&mut self, pause: Time, slot: u8, life: u32, what: NodeEvent) {
        self.queue.push(self.now + pause, Event::Node { slot, life, what });
    }

    pub(crate) fn client_in(&mut self, pause: Time, client: u8, life: u32, what: ClientEvent) {
        self.queue.push(self.now + pause, Event::Client { client, life, what });
    }

    pub(crate) fn world_in(&mut self, pause: Time, what: WorldEvent) {
        self.queue.push(self.now + pause, Event::World(what));
    }
}
