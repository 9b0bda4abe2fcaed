//! The bytes of version 1, written from the protocol's text alone.

use std::fmt;

/// `A`: acquire. `key` may be anything, also what the contract forbids.
#[must_use]
pub fn acquire(key: impl AsRef<[u8]>, owner: u64, wait_secs: u8, lease_secs: u8) -> Vec<u8> {
    let mut bytes = vec![b'A', wait_secs, lease_secs];
    bytes.extend_from_slice(&owner.to_be_bytes());
    finish(bytes, key)
}

/// `R`: release.
#[must_use]
pub fn release(key: impl AsRef<[u8]>, token: u64) -> Vec<u8> {
    with_number(b'R', token, key)
}

/// `C`: cancel (extension 1).
#[must_use]
pub fn cancel(key: impl AsRef<[u8]>, owner: u64) -> Vec<u8> {
    with_number(b'C', owner, key)
}

/// `P`: place (extension 1).
#[must_use]
pub fn place(key: impl AsRef<[u8]>, owner: u64) -> Vec<u8> {
    with_number(b'P', owner, key)
}

/// `V`: verify (extension 1).
#[must_use]
pub fn verify(key: impl AsRef<[u8]>, owner: u64) -> Vec<u8> {
    with_number(b'V', owner, key)
}

fn with_number(op: u8, number: u64, key: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = vec![op];
    bytes.extend_from_slice(&number.to_be_bytes());
    finish(bytes, key)
}

fn finish(mut bytes: Vec<u8>, key: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.extend_from_slice(key.as_ref());
    bytes.push(b'\n');
    bytes
}

/// One frame of the server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// `A`.
    Granted {
        /// Fencing token.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// Key.
        key: Vec<u8>,
    },
    /// `G` (extension 1).
    GrantedUntil {
        /// Fencing token.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// From the receipt of the acquire to the end of its lease; 0: unknown.
        ends_ms: u32,
        /// Key.
        key: Vec<u8>,
    },
    /// `T`.
    TimedOut {
        /// Owner of the acquire.
        owner: u64,
        /// Key.
        key: Vec<u8>,
    },
    /// `B`.
    Busy {
        /// Owner of the acquire.
        owner: u64,
        /// Key.
        key: Vec<u8>,
    },
    /// `R`.
    Released {
        /// Token of the release.
        token: u64,
        /// Key.
        key: Vec<u8>,
    },
    /// `N`.
    NotHeld {
        /// Token of the release.
        token: u64,
        /// Key.
        key: Vec<u8>,
    },
    /// `P` (extension 1).
    Place {
        /// Owner of the acquire.
        owner: u64,
        /// 1 is the head of the queue; 0: not queued.
        place: u32,
        /// How many wait for the key.
        waiters: u32,
        /// Key.
        key: Vec<u8>,
    },
    /// `M`.
    Moved(String),
    /// `L`.
    Leader(String),
    /// `E`.
    Error(String),
}

impl Reply {
    /// `A`.
    #[must_use]
    pub fn granted(token: u64, owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Granted { token, owner, key: key.as_ref().to_vec() }
    }

    /// `T`.
    #[must_use]
    pub fn timed_out(owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::TimedOut { owner, key: key.as_ref().to_vec() }
    }

    /// `B`.
    #[must_use]
    pub fn busy(owner: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Busy { owner, key: key.as_ref().to_vec() }
    }

    /// `R`.
    #[must_use]
    pub fn released(token: u64, key: impl AsRef<[u8]>) -> Self {
        Self::Released { token, key: key.as_ref().to_vec() }
    }

    /// `N`.
    #[must_use]
    pub fn not_held(token: u64, key: impl AsRef<[u8]>) -> Self {
        Self::NotHeld { token, key: key.as_ref().to_vec() }
    }

    /// `P`.
    #[must_use]
    pub fn place(owner: u64, place: u32, waiters: u32, key: impl AsRef<[u8]>) -> Self {
        Self::Place { owner, place, waiters, key: key.as_ref().to_vec() }
    }

    /// `E`.
    #[must_use]
    pub fn error(reason: &str) -> Self {
        Self::Error(reason.to_owned())
    }

    /// The frame at the start of `bytes` and its length with LF; `None`: not complete yet.
    ///
    /// # Panics
    /// If the server broke the contract: an unknown op, an oversized frame, a text that is no text.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header: usize = match bytes.first()? {
            b'A' | b'P' => 16,
            b'G' => 20,
            b'T' | b'B' | b'R' | b'N' => 8,
            b'M' | b'L' | b'E' => 0,
            op => panic!("the server sent the unknown op {op:#04x}: {:?}", bytes.escape_ascii().to_string()),
        };
        let after_header = bytes.get(1 + header..)?;
        let Some(text) = after_header.iter().position(|&byte| byte == b'\n') else {
            assert!(bytes.len() <= 192, "the server sent an oversized frame: {}", bytes.escape_ascii());
            return None;
        };
        let used = 1 + header + text + 1;
        assert!(used <= 193, "the server sent an oversized frame: {}", bytes[..used].escape_ascii());
        let key = after_header[..text].to_vec();
        let u64_at = |at: usize| u64::from_be_bytes(bytes[1 + at..9 + at].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_be_bytes(bytes[1 + at..5 + at].try_into().expect("4 bytes"));
        let string = |text: Vec<u8>| String::from_utf8(text).expect("the server's texts are UTF-8");
        let reply = match bytes[0] {
            b'A' => Self::Granted { token: u64_at(0), owner: u64_at(8), key },
            b'G' => Self::GrantedUntil { token: u64_at(0), owner: u64_at(8), ends_ms: u32_at(16), key },
            b'P' => Self::Place { owner: u64_at(0), place: u32_at(8), waiters: u32_at(12), key },
            b'T' => Self::TimedOut { owner: u64_at(0), key },
            b'B' => Self::Busy { owner: u64_at(0), key },
            b'R' => Self::Released { token: u64_at(0), key },
            b'N' => Self::NotHeld { token: u64_at(0), key },
            b'M' => Self::Moved(string(key)),
            b'L' => Self::Leader(string(key)),
            _ => Self::Error(string(key)),
        };
        if let Self::Error(reason) = &reply {
            let legal = !reason.is_empty() && reason.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
            assert!(legal, "the server sent an illegal reason: {reason:?}");
        }
        Some((reply, used))
    }

    /// The key that the frame is about.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Granted { key, .. }
            | Self::GrantedUntil { key, .. }
            | Self::TimedOut { key, .. }
            | Self::Busy { key, .. }
            | Self::Released { key, .. }
            | Self::NotHeld { key, .. }
            | Self::Place { key, .. } => Some(key),
            Self::Moved(_) | Self::Leader(_) | Self::Error(_) => None,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key().unwrap_or_default().escape_ascii();
        match self {
            Self::Granted { token, owner, .. } => write!(f, "A(token {token}, owner {owner}, {key})"),
            Self::GrantedUntil { token, owner, ends_ms, .. } => {
                write!(f, "G(token {token}, owner {owner}, ends {ends_ms} ms, {key})")
            }
            Self::TimedOut { owner, .. } => write!(f, "T(owner {owner}, {key})"),
            Self::Busy { owner, .. } => write!(f, "B(owner {owner}, {key})"),
            Self::Released { token, .. } => write!(f, "R(token {token}, {key})"),
            Self::NotHeld { token, .. } => write!(f, "N(token {token}, {key})"),
            Self::Place { owner, place, waiters, .. } => {
                write!(f, "P(owner {owner}, place {place} of {waiters}, {key})")
            }
            Self::Moved(address) => write!(f, "M({address})"),
            Self::Leader(address) => write!(f, "L({address})"),
            Self::Error(reason) => write!(f, "E({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_hold_line_feeds() {
        let mut bytes = vec![b'A'];
        bytes.extend_from_slice(&[0x0a; 16]);
        bytes.extend_from_slice(b"key\n");
        let number = 0x0a0a_0a0a_0a0a_0a0a;
        assert_eq!(Reply::parse(&bytes), Some((Reply::granted(number, number, "key"), bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(Reply::parse(&bytes[..cut]), None);
        }
    }

    #[test]
    #[should_panic(expected = "oversized")]
    fn an_oversized_frame_is_a_failure() {
        let _ = Reply::parse(&[b'E'; 193]);
    }

    #[test]
    #[should_panic(expected = "unknown op")]
    fn an_unknown_op_is_a_failure() {
        let _ = Reply::parse(b"X");
    }
}
