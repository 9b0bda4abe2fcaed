//! Forks, and threads that are inside while the interpreter ends.
//!
//! A fork copies the memory and one thread. The thread that does the work of a
//! broker is not there, and a lock that it held stays locked for ever. So
//! nothing of another process is used, and nothing of it is dropped either:
//! that, too, would take locks, and give back what the parent holds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How many forks lie between this process and the one that loaded the module.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many threads of this process are in here without the interpreter's lock.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Called in the child of a fork, before anything else. Touches atomics only.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    INSIDE.store(0, Ordering::Release);
}

/// A value of the process that made it. In a fork it is out of reach, and is
/// forgotten in place of being dropped.
#[derive(Debug)]
pub(crate) struct Own<T> {
    value: Option<T>,
    generation: u64,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), generation: GENERATION.load(Ordering::Acquire) }
    }

    fn is_here(&self) -> bool {
        GENERATION.load(Ordering::Acquire) == self.generation
    }

    /// The value, unless this is a fork.
    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_here() { self.value.as_ref() } else { None }
    }

    /// Takes the value, unless this is a fork.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        if self.is_here() { self.value.take() } else { None }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Held by a thread while it is in here without the interpreter's lock.
pub(crate) struct Inside(Own<()>);

impl Inside {
    pub(crate) fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::AcqRel);
        Self(Own::new(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A fork has begun to count anew.
        if self.0.get().is_some() {
            INSIDE.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Waits until no thread is inside, and says whether it came to that.
///
/// An interpreter that ends kills each thread that asks for its lock, and a
/// thread must not be killed with frames of Rust on its stack.
#[pyfunction]
pub(crate) fn settle(py: Python<'_>, timeout_secs: f64) -> bool {
    let patience = Duration::try_from_secs_f64(timeout_secs).unwrap_or_default();
    py.detach(|| {
        let start = Instant::now();
        while INSIDE.load(Ordering::Acquire) > 0 {
            if start.elapsed() >= patience {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    })
}
