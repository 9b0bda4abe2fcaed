//! Terms of office: which engine decides, and what becomes of its batches.

use std::fmt;

/// A time in which one engine decides. A leader begins another one in the same
/// term when a batch was not applied: what was decided on top of it is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Office {
    /// The leader's term.
    pub term: u64,
    /// 1 for the first one of the term.
    pub run: u64,
}

impl fmt::Display for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "office {}.{}", self.term, self.run)
    }
}

/// What became of a proposed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// A majority has it, and this node has applied it.
    Applied,
    /// It was not applied and never will be.
    Refused,
    /// Nobody can say.
    Unknown,
}
