//! The judge: it sees all processes at once, in true time, and believes none of them.
//!
//! It keeps its own books: what is in the log ([`log`]), what clients were told and
//! what they may believe ([`clients`]), and who waits for what at the node in office
//! ([`queues`]). Where two of them disagree, a rule is broken.

mod clients;
mod log;
mod queues;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ticketing_engine::Office;

use crate::cluster::Entry;
use crate::time::{MILLISECOND, Time};
pub(crate) use clients::No;
pub(crate) use queues::Queues;

/// What may pass between the moment at which something is due and the moment at
/// which a server that can has decided it: messages inside of it, and turns.
pub(crate) const PROMPT: Time = 250 * MILLISECOND;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: &'static str,
    /// What broke it.
    pub text: String,
}

/// How much happened. A run in which nothing happens proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Acquires that clients began.
    pub asked: u64,
    /// Of them: granted to a caller in time, verified ones included.
    pub granted: u64,
    /// Of them: their wait ran out.
    pub timed_out: u64,
    /// Of them: refused.
    pub busy: u64,
    /// Of them: without an answer.
    pub uncertain: u64,
    /// Uncertain ones that a verify cleared up.
    pub verified: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Locks that went straight to the next in line.
    pub handed_off: u64,
    /// Entries that committed.
    pub committed: u64,
    /// Of them: batches that did not count.
    pub skipped: u64,
    /// Offices that began.
    pub offices: u64,
    /// Snapshots that were installed.
    pub snapshots: u64,
    /// Voters that were replaced.
    pub replaced: u64,
    /// Faults of all kinds.
    pub faults: u64,
}

/// An acquire, from its first byte on.
#[derive(Debug)]
struct Ask {
    client: (u8, u32),
    key: Arc<str>,
    /// The greatest token that anybody had been told before.
    newer_than: u64,
    /// Its client was told that it never will be granted.
    refused: Option<No>,
    /// A server was asked how it stands.
    verified: bool,
    token: Option<u64>,
}

/// A grant that is in the log.
#[derive(Debug)]
struct Grant {
    key: Box<[u8]>,
    owner: u64,
    lease: Time,
    office: Office,
    ended: Option<End>,
    /// When the engine that granted it heard that it was applied.
    heard_at: Option<Time>,
    /// When a server first decided that its lease is over.
    run_out_at: Option<Time>,
    /// When its client first asked to give it back.
    release_at: Option<Time>,
    /// In this office no byte of its answer left.
    undelivered: Option<Office>,
    /// It was told to a client in which nobody wanted it any more.
    unwanted: bool,
    /// Who may act on it, and up to when.
    holder: Option<((u8, u32), Time)>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    expired: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    broken: Option<Broken>,
    pub(crate) count: Count,
    /// The log as somebody applied it, from entry 1 on, with what the table was then.
    entries: Vec<(Entry, u64, ticketing_engine::Place)>,
    last_token: u64,
    grants: BTreeMap<u64, Grant>,
    asks: BTreeMap<u64, Ask>,
    /// The current token of each key that is held.
    held: BTreeMap<Box<[u8]>, u64>,
    /// Tokens that somebody may act on.
    holders: Vec<u64>,
    /// For each slot: since when its lease of a token has been running, in true time.
    running: BTreeMap<u8, BTreeMap<u64, Time>>,
    /// The greatest token that anybody was told.
    told: u64,
    /// The cluster has lost its memory: nothing may be decided any more.
    pub(crate) is_over: bool,
}

impl Ledger {
    /// Notes that a rule is broken. The first one counts.
    pub(crate) fn fail(&mut self, rule: &'static str, text: String) {
        self.broken.get_or_insert(Broken { rule, text });
    }

    pub(crate) const fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }
}
