//! The log: all of it in memory, where everybody reads it; and where it must
//! outlive the process, on disk too.

mod entries;

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};

use ticketing_engine::Nanos;
use tokio::task::spawn_blocking;

pub(crate) use entries::{Entries, weight};

use crate::born::Born;
use crate::durable::{Done, Kept, Write, Writer};
use crate::types::{Entry, LogId, Types, Vote};

/// The log. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    state: Arc<Mutex<State>>,
    /// `None`: the log is gone when the process ends.
    disk: Option<Arc<Writer>>,
}

#[derive(Debug, Default)]
struct State {
    entries: Entries,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

impl Log {
    /// A log that goes on where it was left. What it holds counts as born `now`: how
    /// long the node was away nobody knows.
    pub(crate) fn durable(kept: Kept, disk: Arc<Writer>, now: Nanos) -> Self {
        let Kept { purged, mut entries, vote, mut committed } = kept;
        if fault!(ComesBackWithoutItsLastEntries) {
            entries.truncate(entries.len().saturating_sub(4));
            committed = None;
        }
        entries.iter_mut().filter_map(Born::of).for_each(|born| *born = Born::at(now));
        let state = State { entries: Entries::after(purged, entries), vote, committed };
        Self { state: Arc::new(Mutex::new(state)), disk: Some(disk) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much memory the entries take, roughly.
    pub(crate) fn weight(&self) -> usize {
        self.lock().entries.weight()
    }

    /// The last index up to which purging leaves at least `keep` bytes.
    pub(crate) fn purge_point(&self, keep: usize) -> Option<u64> {
        self.lock().entries.purge_point(keep)
    }

    /// Whether this node has never voted and never had an entry: it has promised nothing.
    pub(crate) fn is_pristine(&self) -> bool {
        let state = self.lock();
        state.vote.is_none() && state.entries.last().is_none()
    }

    /// Ends all writing to disk. What was asked for before is written.
    pub(crate) async fn close(&self) {
        if let Some(disk) = self.disk.clone() {
            // It waits for a thread. Should it fail, that has been logged.
            let _ = spawn_blocking(move || disk.close()).await;
        }
    }

    /// Whether the node outlives its process.
    pub(crate) fn is_durable(&self) -> bool {
        self.disk.is_some()
    }

    /// Returns when it is on disk, if there is one.
    pub(crate) async fn write(&self, write: Write) -> Result<(), io::Error> {
        match &self.disk {
            Some(disk) => disk.write_and_wait(write).await,
            None => Ok(()),
        }
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        Ok(self.lock().entries.get(&range))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        Ok(self.lock().entries.get_few(start, end))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let state = self.lock();
        Ok(LogState { last_purged_log_id: state.entries.purged(), last_log_id: state.entries.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.write(Write::Vote(*vote)).await?;
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.lock().committed = committed;
        // It is on disk with whatever is written next. Until then a node that comes
        // back knows less of what is committed than there is, and learns it again.
        if let (Some(disk), Some(committed)) = (&self.disk, committed) {
            disk.note_committed(committed);
        }
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
        let entries = entries.into_iter().collect::<Vec<_>>();
        self.lock().entries.extend(entries.iter().cloned());
        match &self.disk {
            Some(disk) => disk.write(Write::Append(entries), Done::Flushed(callback)).await,
            None => callback.io_completed(Ok(())),
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.lock().entries.truncate_after(last);
        self.write(Write::TruncateFrom(last.map_or(0, |last| last.index + 1))).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.lock().entries.purge(upto);
        if let Some(disk) = &self.disk {
            // A log that is longer than it need be after a crash does no harm.
            disk.write(Write::PurgeUpTo(upto), Done::Nobody).await;
        }
        Ok(())
    }
}
