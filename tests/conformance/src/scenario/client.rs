//! The client's part of a scenario: calls of the client's API in an order, and
//! the outcomes that must come of them.

use serde::Deserialize;
use serde_json::Value;

use super::{Key, Number, Owner, Range, Seconds, Since};

/// What the client is told to do, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ClientStep {
    /// Starts a call and, with `is`, waits for its outcome.
    Do(Do),
    /// Waits for the outcome of a call that was started before.
    Outcome(Outcome),
    /// Asks for the broker's connections until all of these are among them.
    Until(Until),
    Signal(String),
    Await(String),
    Since(Since),
    PauseMs(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Do {
    pub(crate) call: Call,
    /// Name of the call, of its ticket and of its error; by default its kind.
    #[serde(default, rename = "as")]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) is: Option<Expected>,
    #[serde(default)]
    pub(crate) within_ms: Option<Range>,
    /// A language whose types cannot say this may skip the scenario.
    #[serde(default)]
    pub(crate) may_be_inexpressible: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outcome {
    pub(crate) of: String,
    pub(crate) is: Expected,
    #[serde(default)]
    pub(crate) within_ms: Option<Range>,
}

/// One call of the client's API. Durations are seconds, written in decimal,
/// or `nan`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Call {
    Broker(BrokerCall),
    WaitReady {
        #[serde(default = "default_broker")]
        broker: String,
        #[serde(default = "default_timeout")]
        timeout: Seconds,
    },
    Acquire(AcquireCall),
    /// One immediate try, by the method that has no wait.
    TryAcquire {
        #[serde(default = "default_broker")]
        broker: String,
        #[serde(default)]
        key: Key,
        #[serde(default = "default_lease_seconds")]
        lease: Seconds,
    },
    /// Cancels an acquire that was started.
    Cancel(String),
    /// Place in the queue of an acquire that was started.
    Place(String),
    /// Releases the ticket of an acquire or a verify.
    Release(String),
    ReleaseToken {
        #[serde(default = "default_broker")]
        broker: String,
        #[serde(default)]
        key: Key,
        #[serde(default)]
        token: Number,
    },
    /// Lets a ticket go without a release.
    Drop(String),
    /// Turns a ticket into plain data that nothing releases.
    Detach(String),
    /// What is left of a ticket's lease.
    Remaining(String),
    Verify {
        /// The acquire that ended as `indeterminate`.
        of: String,
        #[serde(default = "default_timeout")]
        timeout: Seconds,
    },
    Close {
        #[serde(default = "default_broker")]
        broker: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerCall {
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) token: Option<String>,
    #[serde(default)]
    pub(crate) tls: Option<BrokerTls>,
    #[serde(default)]
    pub(crate) expect_domain: Option<String>,
    #[serde(default)]
    pub(crate) max_pending: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerTls {
    #[serde(default)]
    pub(crate) trust: Trust,
    #[serde(default)]
    pub(crate) server_name: Option<String>,
}

/// Whom a client with TLS believes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trust {
    /// The known authority, given as a file.
    #[default]
    KnownFile,
    /// The known authority, given as text.
    KnownPem,
    /// What the system believes.
    System,
    /// Anybody: verification is off.
    Anybody,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireCall {
    #[serde(default = "default_broker")]
    pub(crate) broker: String,
    #[serde(default)]
    pub(crate) key: Key,
    #[serde(default = "default_wait_seconds")]
    pub(crate) wait: Seconds,
    #[serde(default = "default_lease_seconds")]
    pub(crate) lease: Seconds,
    #[serde(default)]
    pub(crate) min_remaining: Option<Seconds>,
}

fn default_broker() -> String {
    "broker".into()
}

fn default_wait_seconds() -> Seconds {
    Seconds("30".into())
}

fn default_timeout() -> Seconds {
    Seconds("20".into())
}

fn default_lease_seconds() -> Seconds {
    Seconds("30".into())
}

/// How a call ended. The last fourteen are the client's error kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Ticket,
    Released,
    Ready,
    Place,
    Remaining,
    NotAcquired,
    Cancelled,
    Done,
    Connections,
    Inexpressible,
    Timeout,
    Busy,
    NotConnected,
    Indeterminate,
    InsufficientLease,
    NotHeld,
    ReleaseUnconfirmed,
    Auth,
    Tls,
    WrongDomain,
    InvalidInput,
    ClientCapacity,
    Closed,
    Unsupported,
}

impl Kind {
    pub(crate) const fn is_error(self) -> bool {
        match self {
            Self::Ticket
            | Self::Released
            | Self::Ready
            | Self::Place
            | Self::Remaining
            | Self::NotAcquired
            | Self::Cancelled
            | Self::Done
            | Self::Connections
            | Self::Inexpressible => false,
            Self::Timeout
            | Self::Busy
            | Self::NotConnected
            | Self::Indeterminate
            | Self::InsufficientLease
            | Self::NotHeld
            | Self::ReleaseUnconfirmed
            | Self::Auth
            | Self::Tls
            | Self::WrongDomain
            | Self::InvalidInput
            | Self::ClientCapacity
            | Self::Closed
            | Self::Unsupported => true,
        }
    }
}

/// An outcome: its kind alone, or with what comes with it. A list of them:
/// one of these, where the scenario leaves a race open.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Expected(pub(crate) Vec<Detail>);

impl TryFrom<Value> for Expected {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, serde_json::Error> {
        let list = if let Value::Array(list) = value { list } else { vec![value] };
        let detail = |value: Value| {
            let short = value.is_string();
            serde_json::from_value(if short { serde_json::json!({ "kind": value }) } else { value })
        };
        list.into_iter().map(detail).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Detail {
    pub(crate) kind: Kind,
    /// Of a ticket: by default 7.
    #[serde(default)]
    pub(crate) token: Option<Number>,
    /// Of a ticket: by default the one bound to `o`.
    #[serde(default)]
    pub(crate) owner: Option<Owner>,
    /// Of a ticket: by default the usual one; `none` for none.
    #[serde(default)]
    pub(crate) domain: Option<String>,
    #[serde(default)]
    pub(crate) remaining_ms: Option<Range>,
    #[serde(default)]
    pub(crate) place: Option<u32>,
    #[serde(default)]
    pub(crate) waiters: Option<u32>,
    /// Each of these stands in the error's text or that of its causes.
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Until {
    #[serde(default = "default_broker")]
    pub(crate) broker: String,
    pub(crate) connections: Vec<ConnectionLike>,
}

/// Matches a connection that has what is said here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionLike {
    pub(crate) address: String,
    /// How many of them there must be.
    #[serde(default = "one")]
    pub(crate) count: usize,
    #[serde(default)]
    pub(crate) open: Option<bool>,
    #[serde(default)]
    pub(crate) leads: Option<bool>,
    #[serde(default)]
    pub(crate) extension: Option<bool>,
    #[serde(default)]
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) last_error_says: Option<String>,
}

const fn one() -> usize {
    1
}

impl Detail {
    /// Of this kind, and nothing else said.
    pub(crate) const fn of(kind: Kind) -> Self {
        let (token, owner, domain, remaining_ms, place, waiters) = (None, None, None, None, None, None);
        Self { kind, token, owner, domain, remaining_ms, place, waiters, says: Vec::new() }
    }
}

impl Call {
    /// The key that it names.
    pub(crate) const fn key(&self) -> Option<&Key> {
        match self {
            Self::Acquire(acquire) => Some(&acquire.key),
            Self::TryAcquire { key, .. } | Self::ReleaseToken { key, .. } => Some(key),
            Self::Broker(_)
            | Self::WaitReady { .. }
            | Self::Cancel(_)
            | Self::Place(_)
            | Self::Release(_)
            | Self::Drop(_)
            | Self::Detach(_)
            | Self::Remaining(_)
            | Self::Verify { .. }
            | Self::Close { .. } => None,
        }
    }
}

impl Call {
    /// The earlier call that this one is about.
    pub(crate) fn of(&self) -> Option<&str> {
        match self {
            Self::Cancel(of)
            | Self::Place(of)
            | Self::Release(of)
            | Self::Drop(of)
            | Self::Detach(of)
            | Self::Remaining(of)
            | Self::Verify { of, .. } => Some(of),
            Self::Broker(_)
            | Self::WaitReady { .. }
            | Self::Acquire(_)
            | Self::TryAcquire { .. }
            | Self::ReleaseToken { .. }
            | Self::Close { .. } => None,
        }
    }

    /// The broker on which this is called.
    pub(crate) fn broker(&self) -> Option<&str> {
        match self {
            Self::WaitReady { broker, .. }
            | Self::TryAcquire { broker, .. }
            | Self::ReleaseToken { broker, .. }
            | Self::Close { broker } => Some(broker),
            Self::Acquire(acquire) => Some(&acquire.broker),
            Self::Broker(_)
            | Self::Cancel(_)
            | Self::Place(_)
            | Self::Release(_)
            | Self::Drop(_)
            | Self::Detach(_)
            | Self::Remaining(_)
            | Self::Verify { .. } => None,
        }
    }

    /// Whether it is over at once and has nothing to say but `done`.
    pub(crate) const fn is_instant(&self) -> bool {
        matches!(self, Self::Broker(_) | Self::Cancel(_) | Self::Drop(_) | Self::Detach(_))
    }

    /// Its name in the vocabulary of runners.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Broker(_) => "broker",
            Self::WaitReady { .. } => "wait_ready",
            Self::Acquire(_) => "acquire",
            Self::TryAcquire { .. } => "try_acquire",
            Self::Cancel(_) => "cancel",
            Self::Place(_) => "place",
            Self::Release(_) => "release",
            Self::ReleaseToken { .. } => "release_token",
            Self::Drop(_) => "drop",
            Self::Detach(_) => "detach",
            Self::Remaining(_) => "remaining",
            Self::Verify { .. } => "verify",
            Self::Close { .. } => "close",
        }
    }
}

impl Do {
    /// By which later steps call it.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.call.kind())
    }
}
