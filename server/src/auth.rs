//! The client tokens: where they come from, and whether a response proves one.

use std::fmt;
use std::path::Path;

use ticketing_peer::{SECRET_BYTES, read_file};
use ticketing_protocol::handshake::Response;

/// A shorter one could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// One, or two while one replaces the other.
const MAX_TOKENS: usize = 2;

/// The tokens of which clients must know one. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientTokens(Vec<Box<[u8]>>);

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It could be guessed.
    #[error("a token has {0} bytes; it needs at least {MIN_TOKEN_BYTES}, from a random source")]
    TooShort(usize),
    /// None at all.
    #[error("there is no token in it")]
    None,
    /// More than a rotation needs.
    #[error("there are more than {MAX_TOKENS} tokens in it; while one replaces the other there are two")]
    TooMany,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

impl ClientTokens {
    /// None is needed: both ends use the empty text.
    #[must_use]
    pub fn none() -> Self {
        Self(vec![Box::default()])
    }

    /// Whether a client needs one.
    #[must_use]
    pub fn are_needed(&self) -> bool {
        self.0.iter().all(|token| !token.is_empty())
    }

    /// This one.
    ///
    /// # Errors
    /// [`BadToken`] if it is too short.
    pub fn single(token: Vec<u8>) -> Result<Self, BadToken> {
        if token.len() < MIN_TOKEN_BYTES {
            return Err(BadToken::TooShort(token.len()));
        }
        Ok(Self(vec![token.into()]))
    }

    /// Those in a file, one a line. Empty lines do not count.
    ///
    /// # Errors
    /// [`BadToken`] says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, BadToken> {
        let bytes = read_file(path, SECRET_BYTES).map_err(|error| BadToken::Unreadable(error.to_string()))?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, BadToken> {
        let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let tokens = lines.filter(|line| !line.is_empty()).map(Box::from).collect::<Vec<Box<[u8]>>>();
        match tokens.iter().map(|token| token.len()).min() {
            None => Err(BadToken::None),
            Some(bytes) if bytes < MIN_TOKEN_BYTES => Err(BadToken::TooShort(bytes)),
            Some(_) if tokens.len() > MAX_TOKENS => Err(BadToken::TooMany),
            Some(_) => Ok(Self(tokens)),
        }
    }

    /// Whether the response proves one of them. All are tried, so that the time
    /// does not tell which.
    #[must_use]
    pub fn accept(&self, response: &Response<'_>, nonce: &str) -> bool {
        self.0.iter().fold(false, |known, token| known | response.proves(token, nonce))
    }
}

impl fmt::Debug for ClientTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTokens({} hidden)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use ticketing_protocol::handshake::encode_response;

    use super::*;

    const OLD: &str = "an old secret of many bytes";
    const NEW: &str = "a new secret of many bytes";

    fn accepts(tokens: &ClientTokens, token: &str) -> bool {
        let mut line = Vec::new();
        encode_response(token.as_bytes(), "nonce", false, &mut line);
        let response = Response::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
        tokens.accept(&response, "nonce")
    }

    #[test]
    fn two_tokens_are_known_during_a_rotation() {
        let both = ClientTokens::parse(format!("{OLD}\n{NEW}\r\n\n").as_bytes()).unwrap();
        assert!(accepts(&both, OLD) && accepts(&both, NEW));
        assert!(!accepts(&both, "") && !accepts(&both, &OLD[1..]));
        let one = ClientTokens::parse(NEW.as_bytes()).unwrap();
        assert!(accepts(&one, NEW) && !accepts(&one, OLD));
    }

    #[test]
    fn without_a_token_the_empty_one_is_right() {
        assert!(accepts(&ClientTokens::none(), ""));
        assert!(!accepts(&ClientTokens::none(), OLD));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, expected) in [
            ("", BadToken::None),
            ("\n\r\n", BadToken::None),
            ("fifteen bytes..", BadToken::TooShort(15)),
            (&format!("{OLD}\nx\n"), BadToken::TooShort(1)),
            (&format!("{OLD}\n{NEW}\n{OLD}\n"), BadToken::TooMany),
        ] {
            assert_eq!(ClientTokens::parse(text.as_bytes()), Err(expected));
        }
        assert_eq!(ClientTokens::single(b"short".to_vec()), Err(BadToken::TooShort(5)));
        assert!(matches!(ClientTokens::read(Path::new("/does/not/exist")), Err(BadToken::Unreadable(_))));
    }

    #[test]
    fn a_token_is_never_shown() {
        let shown = format!("{:?}", ClientTokens::single(OLD.into()).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
