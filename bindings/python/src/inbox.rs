//! What has ended, on its way to an event loop.
//!
//! A loop sleeps in its selector, where only a file descriptor wakes it. A wake
//! costs a system call, so one is paid for each batch and not for each outcome:
//! only what comes into an empty inbox rings. Neither side waits for the other,
//! and the broker's thread never needs the interpreter's lock.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::mem;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::call::Slot;
use crate::process::Own;

/// The inbox of one event loop. In a fork it is of no use, for its pipe leads to
/// the parent's loop, too.
#[pyclass(frozen, module = "ticketing._ticketing")]
pub(crate) struct Inbox {
    queue: Arc<Queue>,
    here: Own<()>,
}

/// The numbers of calls that have ended, and where their outcomes are.
type Ended = Vec<(u64, Arc<Slot>)>;

/// The two ends of an inbox.
pub(crate) struct Queue {
    /// `None`: nobody will look any more.
    ended: Mutex<Option<Ended>>,
    bell: PipeWriter,
    ear: PipeReader,
}

impl Queue {
    /// Brings a call that has ended. Gives it back if nobody will look.
    pub(crate) fn push(&self, number: u64, slot: Arc<Slot>) -> Result<(), Arc<Slot>> {
        let was_empty = match &mut *self.ended() {
            None => return Err(slot),
            Some(ended) => {
                ended.push((number, slot));
                ended.len() == 1
            }
        };
        if was_empty {
            // The one way to fail is a pipe that is full, and then it has rung.
            let _ = (&self.bell).write(&[1]);
        }
        Ok(())
    }

    fn take(&self) -> Ended {
        // Silenced first: what comes after that rings again.
        let mut rings = [0; 16];
        while (&self.ear).read(&mut rings).is_ok_and(|count| count == rings.len()) {}
        self.ended().as_mut().map(mem::take).unwrap_or_default()
    }

    fn close(&self) {
        // Not under the lock: what is dropped here gives locks back.
        let left = self.ended().take();
        for (_, slot) in left.unwrap_or_default() {
            slot.abandon();
        }
    }

    fn ended(&self) -> MutexGuard<'_, Option<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    pub(crate) fn queue(&self) -> Option<&Arc<Queue>> {
        self.here.get().map(|()| &self.queue)
    }
}

#[pymethods]
impl Inbox {
    #[new]
    fn new() -> io::Result<Self> {
        let (ear, bell) = io::pipe()?;
        rustix::io::ioctl_fionbio(&ear, true)?;
        rustix::io::ioctl_fionbio(&bell, true)?;
        let queue = Arc::new(Queue { ended: Mutex::new(Some(Vec::new())), bell, ear });
        Ok(Self { queue, here: Own::new(()) })
    }

    /// What becomes readable when there is something to take.
    fn fileno(&self) -> RawFd {
        self.queue.ear.as_raw_fd()
    }

    /// Takes what has come: pairs of a call's number and its outcome.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        let ended = self.queue().map(|queue| queue.take()).unwrap_or_default();
        let mut outcomes = Vec::with_capacity(ended.len());
        for (number, slot) in ended {
            if let Some(outcome) = slot.take() {
                outcomes.push((number, slot.tell_python(py, outcome)?));
            }
        }
        Ok(outcomes)
    }

    /// Says that nobody will look any more: tickets that have come, or still
    /// come, are given back.
    fn close(&self) {
        if let Some(queue) = self.queue() {
            queue.close();
        }
    }
}
