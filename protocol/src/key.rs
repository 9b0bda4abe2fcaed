//! A lock's name.

use std::fmt;

use crate::limits::MAX_KEY_BYTES;

/// The name of a lock: 1 to 128 bytes of UTF-8 without space, LF or CR.
///
/// Keys are compared byte by byte: no normalisation, no case folding. Control
/// characters other than LF and CR are legal. A value of this type is the proof
/// that the rules hold, so nothing that takes one checks again.
///
/// ```
/// use ticketing_protocol::Key;
/// assert_eq!(Key::new("order:42")?.as_str(), "order:42");
/// assert!(Key::new("two words").is_err());
/// # Ok::<(), ticketing_protocol::InvalidKey>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// Checks the rules.
    ///
    /// # Errors
    /// [`InvalidKey`] says which rule is broken and where.
    pub fn new(text: &'a str) -> Result<Self, InvalidKey> {
        if text.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(InvalidKey::TooLong { bytes: text.len() });
        }
        match text.bytes().position(|byte| matches!(byte, b' ' | b'\n' | b'\r')) {
            Some(at) => Err(InvalidKey::ForbiddenByte { byte: text.as_bytes()[at], at }),
            None => Ok(Self(text)),
        }
    }

    /// Checks the rules on raw bytes, UTF-8 included.
    ///
    /// # Errors
    /// [`InvalidKey`] says which rule is broken and where.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, InvalidKey> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => Err(InvalidKey::NotUtf8 { at: error.valid_up_to() }),
        }
    }

    /// The key as text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// The key as the bytes that travel.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Which rule a key breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// A key needs at least one byte.
    #[error("the key is empty; it needs 1 to {MAX_KEY_BYTES} bytes")]
    Empty,
    /// More bytes than the contract allows.
    #[error("the key has {bytes} bytes; at most {MAX_KEY_BYTES} are allowed (hash a longer name)")]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// A space, LF or CR.
    #[error(
        "the key has the byte {byte:#04x} at offset {at}; space, line feed and carriage return are not allowed"
    )]
    ForbiddenByte {
        /// The byte.
        byte: u8,
        /// Its offset in the key.
        at: usize,
    },
    /// Not UTF-8.
    #[error("the key is not valid UTF-8 at offset {at}")]
    NotUtf8 {
        /// Offset of the first byte that is not part of a valid character.
        at: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_told_with_its_place() {
        let long = "k".repeat(129);
        for (bytes, expected) in [
            (&b""[..], InvalidKey::Empty),
            (long.as_bytes(), InvalidKey::TooLong { bytes: 129 }),
            (b"a b", InvalidKey::ForbiddenByte { byte: b' ', at: 1 }),
            (b"ab\r", InvalidKey::ForbiddenByte { byte: b'\r', at: 2 }),
            (b"\nab", InvalidKey::ForbiddenByte { byte: b'\n', at: 0 }),
            (b"a\xff", InvalidKey::NotUtf8 { at: 1 }),
            // Overlong slash, a surrogate half, a code point past the last one.
            (b"a\xc0\xaf", InvalidKey::NotUtf8 { at: 1 }),
            (b"\xed\xa0\x80", InvalidKey::NotUtf8 { at: 0 }),
            (b"\xf4\x90\x80\x80", InvalidKey::NotUtf8 { at: 0 }),
        ] {
            assert_eq!(Key::from_bytes(bytes), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn legal_keys_pass_untouched() {
        let longest = "k".repeat(128);
        // NUL, tab, a C1 control, four-byte code points, both forms of é.
        for text in ["a", &longest, "\0", "\t", "\u{85}", "🎟🎟", "\u{e9}", "e\u{301}"] {
            assert_eq!(Key::new(text).unwrap().as_bytes(), text.as_bytes());
        }
        assert_ne!(Key::new("\u{e9}").unwrap(), Key::new("e\u{301}").unwrap());
    }
}
