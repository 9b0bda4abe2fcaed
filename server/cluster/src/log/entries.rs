//! The entries of the log, in memory.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use openraft::EntryPayload;
use openraft::entry::RaftEntry;

use crate::types::{Entry, LogId};

/// How many bytes of entries are read for one message to a peer, at least one entry.
const READ_AT_ONCE: usize = 1 << 20;

/// Roughly how much memory an entry takes.
pub(crate) fn weight(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Blank => size_of::<Entry>(),
        EntryPayload::Normal(command) => size_of::<Entry>() + command.weight(),
        // A handful of members with their addresses.
        EntryPayload::Membership(_) => size_of::<Entry>() + 1024,
    }
}

/// Everything after `purged`, without a gap.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    list: VecDeque<Entry>,
    weight: usize,
    purged: Option<LogId>,
}

impl Entries {
    /// What was left after `purged`.
    pub(crate) fn after(purged: Option<LogId>, list: Vec<Entry>) -> Self {
        Self { weight: list.iter().map(weight).sum(), list: list.into(), purged }
    }

    /// How much memory they take, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// The last entry that there is, or was.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.list.back().map(RaftEntry::log_id).or(self.purged)
    }

    pub(crate) fn extend(&mut self, entries: impl Iterator<Item = Entry>) {
        for entry in entries {
            self.weight += weight(&entry);
            self.list.push_back(entry);
        }
    }

    /// Those in a range.
    pub(crate) fn get(&self, range: &impl RangeBounds<u64>) -> Vec<Entry> {
        self.list.range(self.range(range)).cloned().collect()
    }

    /// Those from `start` up to `end` that go into one message.
    pub(crate) fn get_few(&self, start: u64, end: u64) -> Vec<Entry> {
        let mut weighed = 0;
        let wanted = self.list.range(self.range(&(start..end)));
        let few = wanted.take_while(|entry| {
            let first = weighed == 0;
            weighed += weight(entry);
            first || weighed <= READ_AT_ONCE
        });
        few.cloned().collect()
    }

    /// Drops what comes after `last`.
    pub(crate) fn truncate_after(&mut self, last: Option<LogId>) {
        let kept = last.map_or(0, |last| self.range(&(..=last.index)).end);
        self.drop(kept..self.list.len());
    }

    /// Drops what comes before `upto`, and that entry.
    pub(crate) fn purge(&mut self, upto: LogId) {
        let gone = self.range(&(..=upto.index)).end;
        self.drop(0..gone);
        self.purged = self.purged.max(Some(upto));
    }

    /// The last index up to which purging leaves at least `keep` bytes.
    pub(crate) fn purge_point(&self, keep: usize) -> Option<u64> {
        let mut excess = self.weight.checked_sub(keep)?;
        let mut last = None;
        for entry in &self.list {
            excess = match excess.checked_sub(weight(entry)) {
                Some(rest) => rest,
                None => break,
            };
            last = Some(entry.index());
        }
        last
    }

    fn drop(&mut self, which: std::ops::Range<usize>) {
        let dropped = self.list.drain(which).map(|entry| weight(&entry)).sum::<usize>();
        self.weight -= dropped;
    }

    fn first_index(&self) -> u64 {
        let next = || self.purged.map_or(0, |purged| purged.index + 1);
        self.list.front().map_or_else(next, RaftEntry::index)
    }

    /// Where in the list an index stands, if it is not below it.
    fn position(&self, index: u64) -> usize {
        usize::try_from(index.saturating_sub(self.first_index())).unwrap_or(usize::MAX)
    }

    fn range(&self, range: &impl RangeBounds<u64>) -> std::ops::Range<usize> {
        let from = match range.start_bound() {
            Bound::Included(&index) => self.position(index),
            Bound::Excluded(&index) => self.position(index.saturating_add(1)),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&index) if index < self.first_index() => 0,
            Bound::Included(&index) => self.position(index).saturating_add(1),
            Bound::Excluded(&index) => self.position(index),
            Bound::Unbounded => self.list.len(),
        };
        let to = to.min(self.list.len());
        from.min(to)..to
    }
}
