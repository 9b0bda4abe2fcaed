//! The log of one node.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Command;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The term in which it was appended.
    pub(crate) term: u64,
    pub(crate) command: Rc<Command>,
}

/// Entries from behind `base` on; the first one ever has index 1.
#[derive(Debug, Default)]
pub(crate) struct Log {
    base: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
}

impl Log {
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Term and index of the last entry: of two logs the greater one knows more.
    pub(crate) fn knowledge(&self) -> (u64, u64) {
        (self.term(self.last()).unwrap_or(0), self.last())
    }

    fn place(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.base + 1)?).ok()
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(self.place(index)?)
    }

    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        if index == self.base { Some(self.base_term) } else { self.get(index).map(|entry| entry.term) }
    }

    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.entries.push_back(entry);
        self.last()
    }

    /// Entries from an index on.
    pub(crate) fn from(&self, index: u64) -> Vec<Entry> {
        self.place(index).map_or_else(Vec::new, |place| self.entries.iter().skip(place).cloned().collect())
    }

    /// Drops the entries from an index on.
    pub(crate) fn truncate(&mut self, index: u64) {
        if let Some(place) = self.place(index) {
            self.entries.truncate(place);
        }
    }

    /// Forgets the entries up to an index, which stay in a snapshot.
    pub(crate) fn purge(&mut self, index: u64) {
        while self.base < index
            && let Some(entry) = self.entries.pop_front()
        {
            self.base += 1;
            self.base_term = entry.term;
        }
    }

    /// Begins anew behind a snapshot. What is known to follow it is kept.
    pub(crate) fn begin_at(&mut self, (index, term): (u64, u64)) {
        if self.term(index) == Some(term) {
            self.purge(index);
        } else {
            *self = Self { base: index, base_term: term, entries: VecDeque::new() };
        }
    }
}
