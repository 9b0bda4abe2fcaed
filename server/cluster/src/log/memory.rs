//! The log of a node that forgets everything when its process ends.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};

use super::{READ_AT_ONCE, weight};
use crate::types::{Entry, LogId, Types, Vote};

/// The log in memory. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryLog(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Everything after `purged`, without a gap.
    entries: VecDeque<Entry>,
    weight: usize,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

impl Inner {
    fn first_index(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Where in `entries` an index stands, if it is not below them.
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
            Bound::Unbounded => self.entries.len(),
        };
        let to = to.min(self.entries.len());
        from.min(to)..to
    }
}

impl MemoryLog {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What is behind it is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much memory the entries take, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.lock().weight
    }

    /// The last index up to which purging leaves at least `keep` bytes.
    pub(crate) fn purge_point(&self, keep: usize) -> Option<u64> {
        let inner = self.lock();
        let mut excess = inner.weight.checked_sub(keep)?;
        let mut last = None;
        for entry in &inner.entries {
            excess = match excess.checked_sub(weight(entry)) {
                Some(rest) => rest,
                None => break,
            };
            last = Some(entry.index());
        }
        last
    }
}

impl RaftLogReader<Types> for MemoryLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let inner = self.lock();
        let wanted = inner.range(&range);
        Ok(inner.entries.range(wanted).cloned().collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let inner = self.lock();
        let mut weighed = 0;
        let wanted = inner.entries.range(inner.range(&(start..end)));
        let few = wanted.take_while(|entry| {
            let first = weighed == 0;
            weighed += weight(entry);
            first || weighed <= READ_AT_ONCE
        });
        Ok(few.cloned().collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.lock().vote)
    }
}

impl RaftLogStorage<Types> for MemoryLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let inner = self.lock();
        let last_log_id = inner.entries.back().map(|entry| entry.log_id()).or(inner.purged);
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        {
            let mut inner = self.lock();
            for entry in entries {
                inner.weight += weight(&entry);
                inner.entries.push_back(entry);
            }
        }
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let mut inner = self.lock();
        let kept = last.map_or(0, |last| inner.range(&(..=last.index)).end);
        let cut = inner.entries.drain(kept..).map(|entry| weight(&entry)).sum::<usize>();
        inner.weight -= cut;
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut inner = self.lock();
        let gone = inner.range(&(..=upto.index)).end;
        let cut = inner.entries.drain(..gone).map(|entry| weight(&entry)).sum::<usize>();
        inner.weight -= cut;
        inner.purged = inner.purged.max(Some(upto));
        Ok(())
    }
}
