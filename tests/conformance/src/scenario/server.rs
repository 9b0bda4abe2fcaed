//! The server's part of a scenario: what a script does on its connection.

use serde::Deserialize;

use super::{ByteRange, Key, Number, Owner, Range, Since};

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

/// What is left of the 30 s with which clients acquire.
const fn default_wait() -> ByteRange {
    ByteRange::Between(1, 30)
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectKeepAlive {
    /// Counted from the start of this step.
    pub(crate) within_ms: Range,
}
