//! What a scenario file may say.
//!
//! Everything is strict: a field that is not known here is an error, so a
//! misspelt expectation can never pass as one that holds.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::values::{ByteRange, Key, Number, Owner, Range, Seconds};

/// The fencing domain that a greeting names unless it says otherwise.
pub(crate) const DOMAIN: &str = "000102030405060708090a0b0c0d0e0f";

/// One promise, one way to try it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// `snake_case`, unique in the table.
    pub(crate) name: String,
    /// The promise, in one sentence.
    pub(crate) protects: String,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) client: Vec<ClientStep>,
    /// A scenario that is not over by then has failed.
    #[serde(default = "default_limit_s")]
    pub(crate) limit_s: u64,
}

const fn default_limit_s() -> u64 {
    30
}

/// One scripted server: a port and what its connections do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// The n-th connection plays the n-th script; all of them must be played.
    #[serde(default)]
    pub(crate) connections: Vec<Vec<Step>>,
    /// What connections do for which there is no script.
    #[serde(default)]
    pub(crate) then: Then,
    #[serde(default)]
    pub(crate) listen: Listen,
    /// The address to listen on; a machine without it skips the scenario.
    #[serde(default = "default_host")]
    pub(crate) host: std::net::IpAddr,
    #[serde(default)]
    pub(crate) tls: Option<NodeTls>,
    /// More connections than this are a failure.
    #[serde(default)]
    pub(crate) max_connections: Option<usize>,
}

const fn default_host() -> std::net::IpAddr {
    std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    /// A healthy leader with extension 1 on which nothing may be sent.
    #[default]
    Idle,
    /// The last script again; it need not come to its end.
    RepeatLast,
    /// A reset right after the accept.
    Reset,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Listen {
    #[default]
    AtStart,
    /// Connections are refused until the signal.
    After(String),
    /// Connections are refused.
    Never,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeTls {
    #[serde(default)]
    pub(crate) issuer: Ca,
    /// Names and addresses that the certificate is for.
    #[serde(default = "default_names")]
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) expired: bool,
}

fn default_names() -> Vec<String> {
    vec!["127.0.0.1".into(), "localhost".into()]
}

/// Certificate authorities, made anew for each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ca {
    #[default]
    Known,
    Other,
}

/// What a connection script does, in order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    /// `greet`, `expect_response`, and an `L` frame.
    Open(Open),
    Greet(Greet),
    ExpectResponse(ExpectResponse),
    /// This very line, without its LF.
    ExpectLine(String),
    /// One frame; keep-alives before it are skipped.
    Expect(Request),
    /// These frames, in any order.
    ExpectAll(Vec<Request>),
    /// All of it in one write.
    Send(Vec<Answer>),
    SendPieces(SendPieces),
    /// Reads the first bytes of one frame, then closes.
    Cut(Cut),
    Close(How),
    Signal(String),
    Await(String),
    Since(Since),
    /// No frame comes for so many milliseconds; keep-alives may.
    ExpectSilenceMs(u64),
    ExpectKeepAlive(ExpectKeepAlive),
    /// The client ends the connection; keep-alives may come before.
    ExpectEnd(Nothing),
    /// Whatever comes until the client ends the connection.
    DiscardUntilEnd(Nothing),
    /// In place of the TLS handshake of a node with TLS: it does not succeed.
    TlsFails(Nothing),
}

/// Written as `{}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Open {
    pub(crate) line: Option<String>,
    pub(crate) ext: Option<bool>,
    pub(crate) domain: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) token: String,
    /// Text of the `L` frame; the node itself where nothing is said.
    pub(crate) leader: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Greet {
    /// The whole line without its LF, in place of the usual one.
    pub(crate) line: Option<String>,
    /// Whether the usual line offers extension 1; yes where nothing is said.
    pub(crate) ext: Option<bool>,
    /// Fencing domain in the usual line; `none` leaves it out.
    pub(crate) domain: Option<String>,
    /// Random where nothing is said.
    pub(crate) nonce: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExpectResponse {
    pub(crate) token: String,
    /// Whether the client takes extension 1; as it was offered where nothing is said.
    pub(crate) ext: Option<bool>,
    /// The challenge, where the greeting was sent by another step.
    pub(crate) nonce: Option<String>,
}

/// A frame from the client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Acquire {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
        #[serde(default = "default_wait")]
        wait: ByteRange,
        #[serde(default = "default_lease")]
        lease: ByteRange,
    },
    Release {
        #[serde(default)]
        token: Number,
        #[serde(default)]
        key: Key,
    },
    Cancel {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
    Place {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
    Verify {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
}

/// What is left of the 5 s with which clients acquire.
const fn default_wait() -> ByteRange {
    ByteRange::Between(1, 5)
}

const fn default_lease() -> ByteRange {
    ByteRange::Exactly(30)
}

/// What the server sends: frames, well-formed or not, and raw bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Granted {
        #[serde(default)]
        token: Number,
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
    GrantedUntil {
        #[serde(default)]
        token: Number,
        #[serde(default)]
        owner: Owner,
        ends_ms: u32,
        #[serde(default)]
        key: Key,
    },
    TimedOut {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
    Busy {
        #[serde(default)]
        owner: Owner,
        #[serde(default)]
        key: Key,
    },
    Released {
        #[serde(default)]
        token: Number,
        #[serde(default)]
        key: Key,
    },
    NotHeld {
        #[serde(default)]
        token: Number,
        #[serde(default)]
        key: Key,
    },
    Place {
        #[serde(default)]
        owner: Owner,
        place: u32,
        waiters: u32,
        #[serde(default)]
        key: Key,
    },
    Moved(String),
    Leader(String),
    Error(String),
    /// So many empty frames.
    KeepAlive(usize),
    Text(String),
    Hex(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendPieces {
    pub(crate) frames: Vec<Answer>,
    /// Bytes of one write; all in one where nothing is said.
    #[serde(default)]
    pub(crate) bytes: Option<usize>,
    /// Pause between two writes.
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Nothing after this byte is sent.
    #[serde(default)]
    pub(crate) only_first: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cut {
    pub(crate) frame: Request,
    pub(crate) after: usize,
    pub(crate) how: How,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// End of stream; with TLS without `close_notify`, which is a truncation.
    Fin,
    /// A reset.
    Rst,
    /// With TLS: `close_notify`, then the end of stream.
    CloseNotify,
}

/// A signal lies between these numbers of milliseconds in the past.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    pub(crate) signal: String,
    pub(crate) ms: Range,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectKeepAlive {
    /// Counted from the start of this step.
    pub(crate) within_ms: Range,
}

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
        #[serde(default = "default_seconds")]
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
        #[serde(default = "default_seconds")]
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
    #[serde(default = "default_seconds")]
    pub(crate) wait: Seconds,
    #[serde(default = "default_lease_seconds")]
    pub(crate) lease: Seconds,
    #[serde(default)]
    pub(crate) min_remaining: Option<Seconds>,
}

fn default_broker() -> String {
    "broker".into()
}

fn default_seconds() -> Seconds {
    Seconds("5".into())
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

/// An outcome: its kind alone, or with what comes with it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Expected(pub(crate) Detail);

impl TryFrom<Value> for Expected {
    type Error = serde_json::Error;

    fn try_from(mut value: Value) -> Result<Self, serde_json::Error> {
        if value.is_string() {
            value = serde_json::json!({ "kind": value });
        }
        serde_json::from_value(value).map(Self)
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
