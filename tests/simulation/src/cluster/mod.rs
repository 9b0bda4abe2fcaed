//! The replicated log, as far as a lock server can tell one from another: entries
//! get into it by a write on a term, are copied to a majority, can be dropped with a
//! deposed leader's tail, and reach nodes that fell behind as a snapshot.
//!
//! Elections are abstract: they take no messages, but keep the rules. A node is
//! elected by a majority of voters that it can talk to and that do not know more
//! than it does; whoever could not be talked to does not know of it.

mod apply;
mod elect;
mod log;
mod members;
mod replicate;

use std::rc::Rc;

use ticketing_engine::{Office, Place, Seq};

use crate::time::Time;
pub(crate) use elect::{elect, leader, promote};
pub(crate) use log::{Entry, Log};
pub(crate) use members::Members;
pub(crate) use replicate::Raft;

/// What an entry of the log says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// A leader takes office.
    Office { office: Office, first_token: u64 },
    /// Effects of an engine.
    Batch { office: Office, seq: Seq, record: Box<[u8]> },
}

impl Command {
    /// The term in which it may be appended.
    pub(crate) const fn term(&self) -> u64 {
        match self {
            Self::Office { office, .. } | Self::Batch { office, .. } => office.term,
        }
    }
}

/// What nodes tell each other.
#[derive(Debug)]
pub(crate) enum Message {
    Append {
        from: u64,
        term: u64,
        /// Index and term of the entry before the first one.
        before: (u64, u64),
        entries: Vec<Entry>,
        committed: u64,
        /// Whether an answer is wanted although there are no entries.
        ask: bool,
    },
    Answer {
        from: u64,
        term: u64,
        /// Up to where the logs are equal; `None`: not as far as was thought.
        matched: Option<u64>,
        /// No further than this, at any rate.
        last: u64,
    },
    Snapshot {
        from: u64,
        term: u64,
        /// Index and term of the last entry in it.
        last: (u64, u64),
        table: Rc<[u8]>,
        place: Place,
        /// How long its leases had been running, as the ledger counts them.
        ages: Vec<(u64, Time)>,
    },
}
