//! The thread that writes the database: everything that waits is one transaction
//! with one fsync, and is answered when that is done, in order.

use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use openraft::storage::IOFlushed;
use tokio::sync::{Notify, oneshot};
use tracing::error;

use super::store::{Store, Write};
use crate::log::weight;
use crate::types::{LogId, Types};

/// While more than this waits for the disk, whoever writes is held up.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// Who is told when it is on disk.
pub(crate) enum Done {
    Flushed(IOFlushed<Types>),
    Caller(oneshot::Sender<io::Result<()>>),
    Nobody,
}

impl Done {
    fn tell(self, result: io::Result<()>) {
        match self {
            Self::Flushed(callback) => callback.io_completed(result),
            // Whoever asked may have gone.
            Self::Caller(caller) => drop(caller.send(result)),
            Self::Nobody => {}
        }
    }
}

/// The writing end of a database.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    /// There is something to do.
    wake: Condvar,
    /// There is room again.
    room: Notify,
}

#[derive(Default)]
struct Waiting {
    writes: Vec<Write>,
    /// Who waits for which of the writes, in the same order.
    dones: Vec<Done>,
    bytes: usize,
    committed: Option<LogId>,
    /// Nothing more will come.
    is_closed: bool,
    /// Why nothing can be written any more.
    failed: Option<String>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Gives the database a thread of its own.
    pub(super) fn start(store: Store) -> Result<Self, io::Error> {
        let queue = Queue { waiting: Mutex::default(), wake: Condvar::new(), room: Notify::new() };
        let queue = Arc::new(queue);
        let name = thread::Builder::new().name("log-writer".to_owned());
        let thread = name.spawn({
            let queue = Arc::clone(&queue);
            move || queue.serve(store)
        })?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Asks for something to be written after all that was asked for before. Returns
    /// at once, unless very much waits already.
    pub(crate) async fn write(&self, write: Write, done: Done) {
        self.queue.push(write, done);
        loop {
            let room = self.queue.room.notified();
            if !self.queue.is_full() {
                return;
            }
            room.await;
        }
    }

    /// The same; returns when it is on disk.
    pub(crate) async fn write_and_wait(&self, write: Write) -> Result<(), io::Error> {
        let (done, result) = oneshot::channel();
        self.write(write, Done::Caller(done)).await;
        result.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes the log has ended")))
    }

    /// An entry that is committed. It is written with whatever comes next.
    pub(crate) fn note_committed(&self, committed: LogId) {
        self.queue.lock().committed = Some(committed);
    }

    /// Returns when all that was asked for is written and the database is closed.
    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that writes the log has panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // What is behind it is whole at every moment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        let waiting = self.lock();
        waiting.bytes > MOST_WAITING_BYTES && waiting.failed.is_none()
    }

    fn push(&self, write: Write, done: Done) {
        let mut waiting = self.lock();
        let why_not = match &waiting.failed {
            None if waiting.is_closed => Some("the log is closed"),
            failed => failed.as_deref(),
        };
        if let Some(why_not) = why_not {
            return done.tell(Err(io::Error::other(why_not.to_owned())));
        }
        waiting.bytes += bytes(&write);
        waiting.writes.push(write);
        waiting.dones.push(done);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Everything that waits; `None`: there will be no more.
    fn take(&self) -> Option<Waiting> {
        let mut waiting = self.lock();
        while waiting.writes.is_empty() && !waiting.is_closed {
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.writes.is_empty() && waiting.committed.is_none() {
            return None;
        }
        let is_closed = waiting.is_closed;
        let taken = std::mem::replace(&mut *waiting, Waiting { is_closed, ..Waiting::default() });
        drop(waiting);
        self.room.notify_waiters();
        Some(taken)
    }

    fn serve(&self, mut store: Store) {
        while let Some(Waiting { writes, dones, committed, .. }) = self.take() {
            // A write that is never answered would hang the node.
            let commit = || store.commit(&writes, committed);
            let result = panic::catch_unwind(AssertUnwindSafe(commit));
            match result.unwrap_or_else(|_| Err(io::Error::other("the database has panicked"))) {
                Ok(()) => dones.into_iter().for_each(|done| done.tell(Ok(()))),
                Err(problem) => return self.fail(&problem, dones),
            }
        }
    }

    /// What a failed fsync has left on disk nobody knows, and to try again would not
    /// tell: nothing is written any more, and the node ends.
    fn fail(&self, problem: &io::Error, dones: Vec<Done>) {
        error!(%problem, "the log cannot be written: this node must end");
        let later = {
            let mut waiting = self.lock();
            waiting.failed = Some(problem.to_string());
            std::mem::take(&mut waiting.dones)
        };
        self.room.notify_waiters();
        for done in dones.into_iter().chain(later) {
            done.tell(Err(io::Error::new(problem.kind(), problem.to_string())));
        }
    }
}

fn bytes(write: &Write) -> usize {
    match write {
        Write::Append(entries) => entries.iter().map(weight).sum(),
        Write::TruncateFrom(_) | Write::PurgeUpTo(_) | Write::Vote(_) | Write::Superseded => {
            size_of::<Write>()
        }
    }
}
