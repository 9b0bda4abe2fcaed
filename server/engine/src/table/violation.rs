//! Why an effect cannot be applied.

use std::fmt;

/// An effect does not fit the table: this node and the one that proposed the
/// effect have come apart, or the log is damaged. A node that meets one stops; to
/// guess on would let two clients hold one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Place of the effect in its batch, from 0.
    pub(super) index: usize,
    pub(super) key: Box<[u8]>,
    pub(super) rule: Rule,
}

/// The rule that would be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A held key is not granted.
    Free { token: u64, current: u64 },
    /// Every token is greater than all before.
    NewToken { token: u64, last: u64 },
    /// Only the current grant of a key ends.
    Current { token: u64, current: Option<u64> },
    /// Whoever has a tombstone is granted nothing.
    NotBuried { owner: u64, token: u64 },
    /// Nobody is buried twice.
    BuriedOnce { owner: u64 },
    /// The holder is not buried.
    HolderLives { owner: u64, current: u64 },
    /// Only a tombstone that stands is forgotten.
    Buried { owner: u64 },
}

impl Rule {
    pub(super) fn broken_for(self, key: &[u8]) -> Violation {
        Violation { index: 0, key: key.into(), rule: self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(&self.key);
        write!(out, "effect {} of its batch does not fit the table: key {key:?} ", self.index)?;
        match self.rule {
            Rule::Free { token, current } => {
                write!(out, "is granted under token {token}, but is held under {current}")
            }
            Rule::NewToken { token, last } => {
                write!(out, "is granted under token {token}, but token {last} was given out before")
            }
            Rule::Current { token, current: Some(current) } => {
                write!(out, "is taken from token {token}, but is held under {current}")
            }
            Rule::Current { token, current: None } => {
                write!(out, "is taken from token {token}, but is not held")
            }
            Rule::NotBuried { owner, token } => {
                write!(out, "is granted to owner {owner} under token {token}, who was said to never get it")
            }
            Rule::BuriedOnce { owner } => write!(out, "gets a second tombstone of owner {owner}"),
            Rule::HolderLives { owner, current } => {
                write!(out, "gets a tombstone of owner {owner}, who holds it under token {current}")
            }
            Rule::Buried { owner } => write!(out, "loses a tombstone of owner {owner}, which is not there"),
        }
    }
}

impl std::error::Error for Violation {}
