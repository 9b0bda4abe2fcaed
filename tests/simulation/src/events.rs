//! What will happen, in the order in which it will.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ticketing_engine::{Fate, Office, Seq};

use crate::cluster::{Command, Message};
use crate::network::Side;
use crate::repair::Repair;
use crate::time::Time;

#[derive(Debug)]
pub(crate) enum Event {
    /// For this life of the process in a slot; a later one never sees it.
    Node {
        slot: u8,
        life: u32,
        what: NodeEvent,
    },
    Client {
        client: u8,
        life: u32,
        what: ClientEvent,
    },
    /// The next piece of a stream is there.
    Arrives {
        conn: u64,
        to: Side,
    },
    /// A socket that was full takes bytes again.
    Writable {
        conn: u64,
        side: Side,
    },
    /// The kernel of this end looks whether the other one is still there.
    Doomed {
        conn: u64,
        side: Side,
    },
    World(WorldEvent),
}

#[derive(Debug)]
pub(crate) enum NodeEvent {
    Peer(Box<Message>),
    /// The server looks who leads now.
    Leads,
    /// The consensus takes a proposal.
    Propose(Box<Command>),
    Fate {
        office: Office,
        seq: Seq,
        fate: Fate,
    },
    /// No fate is waited for any longer.
    Patience {
        office: Office,
        seq: Seq,
    },
    /// What became of the proposal to take this office.
    Office {
        office: Office,
        begun: bool,
    },
    /// The driver does what has come.
    Turn,
    /// The engine has something due.
    Alarm,
    /// Whether a connection needs a sign of life.
    KeepAlive(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientEvent {
    Connect(u8),
    /// The session of this link has something due.
    Alarm(u8),
    /// A job that waits looks again.
    Job(u64),
    /// A worker goes on, if it is still about the same.
    Worker(u8, u32),
    /// A worker has no more patience with this job.
    GiveUp(u8, u64),
}

#[derive(Debug)]
pub(crate) enum WorldEvent {
    Fault,
    Repair(Repair),
    Elect,
    /// Whoever leads is deposed.
    Depose,
    /// Leaders go on where messages were lost.
    Resync,
    /// A process without an id asks for one.
    Join(u8),
    /// Clients begin, or end, a time of haste.
    Burst(bool),
    /// No more faults.
    Calm,
    /// What is asked from here on must be answered.
    Fair,
    /// No more wishes.
    Quiet,
    /// All requests must be over.
    Settled,
    /// Probes must be answered.
    Probed,
    /// Nothing may be left.
    End,
}

/// What will happen.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    /// Of two at the same moment the first that was pushed comes first.
    order: u64,
    event: Event,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse(Entry { at, order: self.pushed, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// How many events there have been or will be.
    pub(crate) const fn pushed(&self) -> u64 {
        self.pushed
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
