//! The golden vectors of `protocol/vectors`, as values.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ticketing_protocol::{ClientFrame, Extension, Key, ServerFrame};

/// Reads one file of vectors.
pub fn load<T: DeserializeOwned>(file: &str) -> T {
    let path = format!("{}/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Bytes, written as hexadecimal digits.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Hex(pub Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("not hexadecimal: {text:?}"));
        }
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        Ok(Self((0..text.len()).step_by(2).map(byte).collect()))
    }
}

/// A u64, written as a decimal string: not every language has numbers that wide.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Decimal(pub u64);

impl TryFrom<String> for Decimal {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

/// A file of single frames.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames<F> {
    pub direction: String,
    pub frames: Vec<FrameVector<F>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameVector<F> {
    pub name: String,
    /// Whether the frame needs extension 1; the others are read either way.
    pub extension: bool,
    pub bytes: Hex,
    pub frame: F,
}

/// A file of streams.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams<F> {
    pub direction: String,
    pub streams: Vec<StreamVector<F>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamVector<F> {
    pub name: String,
    pub extension: bool,
    pub bytes: Hex,
    pub frames: Vec<F>,
    pub malformed: Option<Verdict>,
    /// Given where the stream is legal: whether it ends inside a frame.
    pub mid_frame: Option<bool>,
}

#[derive(Deserialize, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    pub kind: String,
    pub at: usize,
}

pub fn extension(on: bool) -> Extension {
    if on { Extension::On } else { Extension::Off }
}

/// A frame from client to server.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
pub enum FromClient {
    A { wait: u8, lease: u8, owner: Decimal, key: String },
    R { token: Decimal, key: String },
    C { owner: Decimal, key: String },
    P { owner: Decimal, key: String },
    V { owner: Decimal, key: String },
}

impl FromClient {
    pub fn frame(&self) -> ClientFrame<'_> {
        match self {
            Self::A { wait, lease, owner, key } => {
                ClientFrame::Acquire { wait: *wait, lease: *lease, owner: owner.0, key: legal(key) }
            }
            Self::R { token, key } => ClientFrame::Release { token: token.0, key: legal(key) },
            Self::C { owner, key } => ClientFrame::Cancel { owner: owner.0, key: legal(key) },
            Self::P { owner, key } => ClientFrame::Place { owner: owner.0, key: legal(key) },
            Self::V { owner, key } => ClientFrame::Verify { owner: owner.0, key: legal(key) },
        }
    }
}

/// A frame from server to client.
#[derive(Deserialize)]
#[serde(tag = "op", deny_unknown_fields)]
pub enum FromServer {
    A { token: Decimal, owner: Decimal, key: String },
    G { token: Decimal, owner: Decimal, ends_ms: u32, key: String },
    T { owner: Decimal, key: String },
    B { owner: Decimal, key: String },
    R { token: Decimal, key: String },
    N { token: Decimal, key: String },
    P { owner: Decimal, place: u32, waiters: u32, key: String },
    M { address: String },
    L { address: String },
    E { reason: String },
}

impl FromServer {
    pub fn frame(&self) -> ServerFrame<'_> {
        match self {
            Self::A { token, owner, key } => {
                ServerFrame::Granted { token: token.0, owner: owner.0, key: legal(key) }
            }
            Self::G { token, owner, ends_ms, key } => ServerFrame::GrantedUntil {
                token: token.0,
                owner: owner.0,
                ends_ms: *ends_ms,
                key: legal(key),
            },
            Self::T { owner, key } => ServerFrame::TimedOut { owner: owner.0, key: legal(key) },
            Self::B { owner, key } => ServerFrame::Busy { owner: owner.0, key: legal(key) },
            Self::R { token, key } => ServerFrame::Released { token: token.0, key: legal(key) },
            Self::N { token, key } => ServerFrame::NotHeld { token: token.0, key: legal(key) },
            Self::P { owner, place, waiters, key } => {
                ServerFrame::Place { owner: owner.0, place: *place, waiters: *waiters, key: legal(key) }
            }
            Self::M { address } => ServerFrame::Moved { address },
            Self::L { address } => ServerFrame::Leader { address },
            Self::E { reason } => ServerFrame::Error { reason },
        }
    }
}

fn legal(key: &str) -> Key<'_> {
    Key::new(key).expect("the vectors name legal keys only")
}

/// The file of handshake lines; all lines without their LF.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    pub digests: Vec<DigestVector>,
    pub nonces: Vec<NonceVector>,
    pub greetings: Vec<GreetingVector>,
    pub responses: Vec<ResponseVector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DigestVector {
    pub name: String,
    pub token: Hex,
    pub nonce: String,
    pub digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonceVector {
    pub random: Hex,
    pub nonce: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreetingVector {
    pub name: String,
    pub line: Hex,
    pub error: Option<String>,
    pub greeting: Option<GreetingFields>,
    /// Whether a server that means `greeting` writes exactly this line.
    pub written: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreetingFields {
    pub domain: Option<String>,
    pub node: Option<Decimal>,
    #[serde(rename = "self")]
    pub own_address: Option<String>,
    pub extension: bool,
    pub nonce: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseVector {
    pub name: String,
    pub token: Hex,
    pub nonce: String,
    pub line: Hex,
    pub error: Option<String>,
    pub proves: Option<bool>,
    pub extension: Option<bool>,
    /// Whether a client with this token writes exactly this line.
    pub written: Option<bool>,
}
