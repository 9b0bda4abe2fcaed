//! What is recorded.

use serde::{Deserialize, Serialize};

/// Nanoseconds of one monotonic clock that all recorders of a history share.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// What was asked of one lock service, and what it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In any order.
    pub ops: Vec<Op>,
    /// What else happened, in any order.
    pub notes: Vec<Note>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// Unique in the history.
    pub id: u64,
    /// Who asked.
    pub process: u64,
    /// On which connection it was sent, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The lock's name.
    pub key: String,
    /// What was asked.
    #[serde(flatten)]
    pub call: Call,
    /// Before the first byte of it was handed to anybody.
    pub invoked: Nanos,
    /// `None`: not when the record ended, or the process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
}

/// A place among the requests of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// Unique in the history: a new number for every connection that is opened.
    pub connection: u64,
    /// Requests with a smaller number were sent before this one.
    pub order: u64,
}

/// What a request asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// To hold the lock.
    Acquire {
        /// How long to wait for it, in seconds.
        wait_secs: u8,
        /// Length of the lease, in seconds.
        lease_secs: u8,
        /// A cancel was sent for it, so that it may end as busy.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cancelled: bool,
        /// When the client had been told that it stands in the queue, if it asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<Nanos>,
    },
    /// To give the lock back.
    Release {
        /// Under which fencing token.
        token: u64,
    },
    /// How an acquire ended whose answer was lost.
    Verify {
        /// The `id` of that acquire.
        of: u64,
    },
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// After the answer had been read.
    pub at: Nanos,
    /// The answer.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The lock is held: of an acquire, or of a verify that found it so.
    Granted {
        /// Fencing token.
        token: u64,
        /// Until when the client takes the lease to last. Without it, that is counted
        /// from the invocation of the acquire.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends: Option<Nanos>,
    },
    /// The wait of an acquire ran out.
    TimedOut,
    /// An acquire was refused: it does not hold the lock and never will.
    Busy,
    /// Of an acquire: the client gives back whatever comes, because its caller had gone
    /// or too little of the lease was left.
    GivenBack,
    /// A release was confirmed.
    Released,
    /// The lock is not held under the token of a release.
    NotHeld {
        /// An earlier try of the same release lost its answer, and may be the reason.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retried: bool,
    },
    /// A verify learnt that the acquire does not hold the lock and never will.
    NotAcquired,
    /// Not one byte was sent: certainly nothing happened.
    NotSent,
    /// Something was sent, and nobody knows what became of it.
    Indeterminate,
}

/// Something that is no request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Not before this moment.
    pub from: Nanos,
    /// Not after this moment.
    pub to: Nanos,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen beside requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The service lost who holds what, as a server without a disk does when it
    /// restarts, or a cluster under a new identity. Tokens go on higher up.
    Forgot,
    /// Tokens went on higher up, and nothing else was lost.
    SkippedTokens,
    /// A process was killed: its requests may stay unanswered.
    Died {
        /// Which.
        process: u64,
    },
    /// An answer came that answers no open request.
    Stray {
        /// The answer, for the reader.
        text: String,
    },
    /// The record ends. Whatever was due well before and has no answer never got one.
    End,
    /// For the reader of a violation: a leader was killed, a network was cut.
    Remark {
        /// What.
        text: String,
    },
}

impl Call {
    /// An acquire with this wait and this lease, both in seconds.
    #[must_use]
    pub const fn acquire(wait_secs: u8, lease_secs: u8) -> Self {
        Self::Acquire { wait_secs, lease_secs, cancelled: false, queued: None }
    }
}

impl Op {
    /// The answer, if one came.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.returned.map(|returned| returned.outcome)
    }
}
