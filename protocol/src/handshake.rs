//! Greeting, challenge and response: once, after TCP and TLS, before any frame.
//!
//! ```text
//! server  TICKETING/1;domain=<32 hex>;node=<decimal>;self=<host:port>;ext=1 <nonce> LF
//! client  <43 characters>;ext=1 LF
//! server  its first frame, or after a pause an E frame
//! ```
//!
//! The response is base64url without padding of SHA-256(token, nonce): the
//! token itself never crosses the wire, and a new nonce for every connection
//! makes a recorded response worthless.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::limits::{MAX_GREETING_BYTES, MAX_RESPONSE_BYTES};

/// The greeting word of this version.
const WORD: &str = "TICKETING/1";

/// Length of the base64url text of a SHA-256 digest.
const DIGEST_CHARS: usize = 43;

/// A fencing domain: tokens compare only within one.
///
/// ```
/// use ticketing_protocol::handshake::Domain;
/// let domain = Domain::parse("000102030405060708090a0b0c0d0e0f").unwrap();
/// assert_eq!(domain.to_string(), "000102030405060708090a0b0c0d0e0f");
/// assert_eq!(Domain::parse("too short"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Domain(pub [u8; 16]);

impl Domain {
    /// Reads 32 hexadecimal digits of either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // `from_str_radix` would take a sign.
        let legal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = if legal { u128::from_str_radix(text, 16).ok()? } else { return None };
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({self})")
    }
}

/// What the server says first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Greeting<'a> {
    /// The fencing domain.
    pub domain: Option<Domain>,
    /// The server's node id.
    pub node: Option<u64>,
    /// The server's own client address, as `L` and `M` of any node name it.
    pub own_address: Option<&'a str>,
    /// Whether the server speaks extension 1.
    pub extension: bool,
    /// The challenge: 22 characters of base64url from our servers, any visible
    /// ASCII from others of the family.
    pub nonce: &'a str,
}

/// Why a line of the handshake makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHandshake {
    /// The line has more bytes than the contract allows.
    #[error("the line is longer than the {max} bytes that the protocol allows")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// Not a greeting at all: another service, or TLS on a plain connection.
    #[error("this is not a Ticketing greeting (another service on that port, or TLS on one end only?)")]
    NotAGreeting,
    /// A version of the protocol that this client does not speak.
    #[error("the server speaks another version of the protocol; this client speaks version 1")]
    UnknownVersion,
    /// A known field with a value that makes no sense, or twice.
    #[error("the field {0:?} has a bad value or stands twice")]
    BadField(&'static str),
    /// The response is not 43 characters with optional fields.
    #[error("the response is not 43 characters of base64url with optional fields")]
    BadResponse,
}

impl<'a> Greeting<'a> {
    /// Appends the line to `out`, LF included.
    ///
    /// An address that is empty or does not fit is left out: clients then match
    /// hints literally.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut line = String::from(WORD);
        if let Some(domain) = self.domain {
            line += &format!(";domain={domain}");
        }
        if let Some(node) = self.node {
            line += &format!(";node={node}");
        }
        if self.extension {
            line += ";ext=1";
        }
        if let Some(address) = self.own_address {
            let room = MAX_GREETING_BYTES.saturating_sub(line.len() + ";self=".len() + 1 + self.nonce.len());
            if (1..=room).contains(&address.len()) && address.bytes().all(is_value_byte) {
                line += &format!(";self={address}");
            }
        }
        line.push(' ');
        line += self.nonce;
        line.push('\n');
        out.extend_from_slice(line.as_bytes());
    }

    /// Reads a line, without its LF.
    ///
    /// Any greeting word is taken, so that other servers of the family can be
    /// used; fields count only behind our own word.
    ///
    /// # Errors
    /// [`BadHandshake`] says what is wrong with it.
    pub fn parse(line: &'a [u8]) -> Result<Self, BadHandshake> {
        if line.len() > MAX_GREETING_BYTES {
            return Err(BadHandshake::TooLong { max: MAX_GREETING_BYTES });
        }
        let line = std::str::from_utf8(line).map_err(|_| BadHandshake::NotAGreeting)?;
        let (head, nonce) = line.split_once(' ').ok_or(BadHandshake::NotAGreeting)?;
        if head.is_empty()
            || nonce.is_empty()
            || !(head.bytes().chain(nonce.bytes())).all(|byte| byte.is_ascii_graphic())
        {
            return Err(BadHandshake::NotAGreeting);
        }
        let mut greeting = Self { nonce, ..Self::default() };
        let mut fields = head.split(';');
        let word = fields.next().unwrap_or_default();
        if word != WORD {
            let other_version = word.starts_with("TICKETING/");
            return if other_version { Err(BadHandshake::UnknownVersion) } else { Ok(greeting) };
        }
        for field in fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            match name {
                "domain" => set(&mut greeting.domain, "domain", Domain::parse(value))?,
                "node" => set(&mut greeting.node, "node", decimal(value))?,
                "self" => {
                    set(&mut greeting.own_address, "self", Some(value).filter(|value| !value.is_empty()))?;
                }
                // One field an extension: a later server may announce several.
                "ext" => greeting.extension |= value == "1",
                _ => {}
            }
        }
        Ok(greeting)
    }
}

fn set<T>(slot: &mut Option<T>, name: &'static str, value: Option<T>) -> Result<(), BadHandshake> {
    if slot.is_some() || value.is_none() {
        return Err(BadHandshake::BadField(name));
    }
    *slot = value;
    Ok(())
}

fn decimal(text: &str) -> Option<u64> {
    // `parse` would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

const fn is_value_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b';'
}

/// What the client answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The 43 characters.
    digest: &'a [u8],
    /// Whether the client wants extension 1.
    pub extension: bool,
}

impl<'a> Response<'a> {
    /// Reads a line, without its LF. Unknown fields are ignored.
    ///
    /// # Errors
    /// [`BadHandshake`] where the line can be no response at all; whether the
    /// digest is right is [`Response::proves`]'s to say.
    pub fn parse(line: &'a [u8]) -> Result<Self, BadHandshake> {
        if line.len() > MAX_RESPONSE_BYTES {
            return Err(BadHandshake::TooLong { max: MAX_RESPONSE_BYTES });
        }
        let (digest, fields) = line.split_at_checked(DIGEST_CHARS).ok_or(BadHandshake::BadResponse)?;
        let mut fields = fields.split(|&byte| byte == b';');
        // Nothing stands between the digest and the first semicolon.
        if fields.next() != Some(b"") {
            return Err(BadHandshake::BadResponse);
        }
        let extension = fields.any(|field| field == b"ext=1");
        Ok(Self { digest, extension })
    }

    /// Whether the response proves the knowledge of `token`, in a time that
    /// does not depend on how near it is.
    ///
    /// ```
    /// use ticketing_protocol::handshake::{Response, encode_response};
    /// let mut line = Vec::new();
    /// encode_response(b"secret", "aB3dEf_g", true, &mut line);
    /// let response = Response::parse(line.strip_suffix(b"\n").unwrap())?;
    /// assert!(response.extension);
    /// assert!(response.proves(b"secret", "aB3dEf_g"));
    /// assert!(!response.proves(b"Secret", "aB3dEf_g"));
    /// # Ok::<(), ticketing_protocol::handshake::BadHandshake>(())
    /// ```
    #[must_use]
    pub fn proves(&self, token: &[u8], nonce: &str) -> bool {
        digest(token, nonce).as_bytes().ct_eq(self.digest).into()
    }
}

/// The 43 characters that prove the knowledge of `token` for this `nonce`.
///
/// ```
/// use ticketing_protocol::handshake::digest;
/// assert_eq!(digest(b"secret", "aB3dEf_g"), "WvDLEd0VIA9cVatiwxXYXRGMDSXw0ibHllLgAMBffdg");
/// ```
#[must_use]
pub fn digest(token: &[u8], nonce: &str) -> String {
    let hash = Sha256::new().chain_update(token).chain_update(nonce).finalize();
    URL_SAFE_NO_PAD.encode(hash)
}

/// Appends the client's answer to `out`, LF included.
pub fn encode_response(token: &[u8], nonce: &str, extension: bool, out: &mut Vec<u8>) {
    let mut line = digest(token, nonce);
    // Writing to a string cannot fail.
    let _ = writeln!(line, "{}", if extension { ";ext=1" } else { "" });
    out.extend_from_slice(line.as_bytes());
}

/// The nonce made of 16 random bytes: 22 characters of base64url.
///
/// ```
/// assert_eq!(ticketing_protocol::handshake::nonce([0; 16]).len(), 22);
/// ```
#[must_use]
pub fn nonce(random: [u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(greeting: &Greeting<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        greeting.encode(&mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_greeting_reads_back() {
        let full = Greeting {
            domain: Some(Domain([0xab; 16])),
            node: Some(u64::MAX),
            own_address: Some("[::1]:5225"),
            extension: true,
            nonce: "aB3dEf_g",
        };
        assert_eq!(Greeting::parse(&line(&full)), Ok(full));
        let bare = Greeting { nonce: "x", ..Greeting::default() };
        assert_eq!(line(&bare), b"TICKETING/1 x");
        assert_eq!(Greeting::parse(&line(&bare)), Ok(bare));
    }

    #[test]
    fn an_address_that_does_not_fit_is_left_out() {
        let long = "h".repeat(250);
        let greeting = Greeting { own_address: Some(&long), nonce: "n", ..Greeting::default() };
        assert_eq!(line(&greeting), b"TICKETING/1 n");
        let fits = "h".repeat(256 - "TICKETING/1;self= n".len());
        let greeting = Greeting { own_address: Some(&fits), nonce: "n", ..Greeting::default() };
        assert_eq!(line(&greeting).len(), 256);
        for unfit in ["", "two words:1", "a;ext=1:1", "caf\u{e9}:1"] {
            let greeting = Greeting { own_address: Some(unfit), nonce: "n", ..Greeting::default() };
            assert_eq!(line(&greeting), b"TICKETING/1 n", "{unfit:?}");
        }
    }

    #[test]
    fn other_words_and_unknown_fields_are_taken() {
        let other = Greeting::parse(b"HELLO;ext=1;domain=zz n0nce").unwrap();
        assert_eq!(other, Greeting { nonce: "n0nce", ..Greeting::default() });
        let later = Greeting::parse(b"TICKETING/1;new=thing;flag;ext=2 n").unwrap();
        assert_eq!(later, Greeting { nonce: "n", ..Greeting::default() });
    }

    #[test]
    fn bad_greetings_are_told_apart() {
        let long = [b'a'; 257];
        for (bytes, expected) in [
            (&long[..], BadHandshake::TooLong { max: 256 }),
            (b"", BadHandshake::NotAGreeting),
            (b"HTTP/1.1", BadHandshake::NotAGreeting),
            (b"a b c", BadHandshake::NotAGreeting),
            (b" n", BadHandshake::NotAGreeting),
            (b"TICKETING/1 ", BadHandshake::NotAGreeting),
            (b"TICKETING/1 n\r", BadHandshake::NotAGreeting),
            (b"\x15\x03\x01 \xff", BadHandshake::NotAGreeting),
            (b"TICKETING/2 n", BadHandshake::UnknownVersion),
            (b"TICKETING/1;domain=12 n", BadHandshake::BadField("domain")),
            (b"TICKETING/1;domain=+00102030405060708090a0b0c0d0e0f n", BadHandshake::BadField("domain")),
            (b"TICKETING/1;node=+1 n", BadHandshake::BadField("node")),
            (b"TICKETING/1;node=1;node=1 n", BadHandshake::BadField("node")),
            (b"TICKETING/1;self= n", BadHandshake::BadField("self")),
        ] {
            assert_eq!(Greeting::parse(bytes), Err(expected), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn responses_are_read_by_count() {
        let good = digest(b"", "n");
        let text = |tail: &str| format!("{good}{tail}").into_bytes();
        assert!(!Response::parse(&text("")).unwrap().extension);
        assert!(Response::parse(&text(";x=y;ext=1")).unwrap().extension);
        assert!(!Response::parse(&text(";ext=2")).unwrap().extension);
        for bad in [text("x"), text("=;ext=1"), good.as_bytes()[..42].to_vec(), Vec::new()] {
            assert_eq!(Response::parse(&bad), Err(BadHandshake::BadResponse));
        }
        let long = text(&format!(";{}", "x".repeat(85)));
        assert_eq!(Response::parse(&long), Err(BadHandshake::TooLong { max: 128 }));
    }
}
