//! The values of which scenarios are made.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// Both ends included.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Range(pub(crate) u64, pub(crate) u64);

impl Range {
    pub(crate) const fn contains_ms(self, ms: f64) -> bool {
        // Exact: no time here comes near 2^53 milliseconds.
        ms >= self.0 as f64 && ms <= self.1 as f64
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} ms", self.0, self.1)
    }
}

/// A byte on the wire, or the range in which it lies.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ByteRange {
    Exactly(u8),
    Between(u8, u8),
}

impl ByteRange {
    pub(crate) const fn contains(self, byte: u8) -> bool {
        match self {
            Self::Exactly(wanted) => byte == wanted,
            Self::Between(from, to) => from <= byte && byte <= to,
        }
    }
}

/// A token: decimal, or hexadecimal behind `0x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Number(pub(crate) u64);

impl Default for Number {
    fn default() -> Self {
        Self(7)
    }
}

impl TryFrom<Value> for Number {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
        .map(Self)
        .ok_or_else(|| format!("{value} is not an unsigned 64-bit number"))
    }
}

/// Seconds as a client is given them: decimal text, so that every language
/// reads the same, or what is no duration at all, such as `nan`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Seconds(pub(crate) String);

impl TryFrom<Value> for Seconds {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => Ok(Self(text.to_owned())),
            None if value.is_number() => Ok(Self(value.to_string())),
            None => Err(format!("{value} is neither a number of seconds nor a text")),
        }
    }
}

/// An owner is chosen by the client, so a script gives the first one that it
/// reads a name; a number stands for itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Owner {
    Named(String),
    Number(u64),
}

impl Default for Owner {
    fn default() -> Self {
        Self::Named("o".into())
    }
}

impl TryFrom<String> for Owner {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return Number::try_from(Value::String(text)).map(|number| Self::Number(number.0));
        }
        if text.is_empty() {
            return Err("an owner needs a name".into());
        }
        Ok(Self::Named(text))
    }
}

/// A lock's name: text, or any bytes in hexadecimal.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Key {
    Text(String),
    Bytes(Vec<u8>),
}

impl Key {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl TryFrom<Value> for Key {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match (&value, value.get("hex").and_then(Value::as_str)) {
            (Value::String(text), _) => Ok(Self::Text(text.clone())),
            (_, Some(digits)) => from_hex(digits).map(Self::Bytes),
            (_, None) => Err(format!("{value} is neither a text nor {{\"hex\": \"…\"}}")),
        }
    }
}

/// Bytes from hexadecimal digits; spaces between them are for the reader.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|&digit| digit != ' ').collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).ok().filter(|_| pair.len() == 2)
        })
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{text:?} is not pairs of hexadecimal digits"))
}

impl Default for Key {
    fn default() -> Self {
        Self::Text("k".into())
    }
}
