//! Handles: numbers that are looked up, and never used twice.
//!
//! A freed handle can therefore not come to mean something else, and there is
//! no pointer that a mistake of the caller could follow.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ticketing::embed::Embedded;

use crate::call::Call;
use crate::failure::{About, Failure};
use crate::status::{TICKETING_FORKED, TICKETING_STALE_HANDLE};
use crate::ticket::Held;

/// A client: its connections, and the thread that serves them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct BrokerHandle {
    /// 0 is no broker.
    pub id: u64,
}

/// A lock that is held.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct TicketHandle {
    /// 0 is no ticket.
    pub id: u64,
}

/// A call that was started and will call back. It is over when that has begun, and is not to be
/// freed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CallHandle {
    /// 0 is no call.
    pub id: u64,
}

/// An acquire whose outcome is unknown.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct UncertainHandle {
    /// 0 is none.
    pub id: u64,
}

/// Threads that look handles up at once should seldom meet.
const SHARDS: usize = 16;

/// The next handle; goes on in a forked process, so that inherited handles are
/// told from its own.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What this process has, or the one that it was forked from.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// All that the handles of one process stand for.
pub(crate) struct Process {
    id: u32,
    /// Its first handle: lesser ones were inherited.
    first: u64,
    pub(crate) brokers: Registry<Arc<Embedded>>,
    pub(crate) calls: Registry<Arc<Call>>,
    pub(crate) tickets: Registry<Held>,
    pub(crate) uncertain: Registry<About>,
}

/// The things of this process.
///
/// After a fork they are new ones. The old ones are left alone: a thread that is
/// not in the child may have held their locks.
#[allow(unsafe_code, reason = "what was leaked is borrowed for ever")]
pub(crate) fn here() -> &'static Process {
    let id = process::id();
    let mut found = PROCESS.load(Ordering::Acquire);
    loop {
        // SAFETY: null, or a box that was leaked below.
        if let Some(process) = unsafe { found.as_ref() }
            && process.id == id
        {
            return process;
        }
        let fresh = Box::into_raw(Box::new(Process::new(id)));
        match PROCESS.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => found = fresh,
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                found = other;
            }
        }
    }
}

impl Process {
    fn new(id: u32) -> Self {
        Self {
            id,
            first: NEXT.load(Ordering::Relaxed),
            brokers: Registry::default(),
            calls: Registry::default(),
            tickets: Registry::default(),
            uncertain: Registry::default(),
        }
    }

    pub(crate) fn broker(&self, handle: BrokerHandle) -> Result<Arc<Embedded>, Failure> {
        self.brokers.get(handle.id).ok_or_else(|| self.missing(handle.id, "broker"))
    }

    /// Why there is nothing with this number.
    pub(crate) fn missing(&self, number: u64, what: &str) -> Failure {
        if number == 0 {
            Failure::null(what)
        } else if number < self.first {
            let message =
                format!("{what} {number} belongs to the parent of this process; open a new broker here");
            Failure::new(TICKETING_FORKED, message)
        } else {
            let message = format!("there is no {what} {number}: it was freed, is over, or never was");
            Failure::new(TICKETING_STALE_HANDLE, message)
        }
    }
}

/// Things by their numbers. An empty tree owns no memory, so whoever looks for leaks at the end finds none.
pub(crate) struct Registry<T>([Mutex<BTreeMap<u64, T>>; SHARDS]);

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<T> Registry<T> {
    #[allow(clippy::cast_possible_truncation, reason = "the remainder is small")]
    fn shard(&self, number: u64) -> MutexGuard<'_, BTreeMap<u64, T>> {
        let shard = &self.0[(number % SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, thing: T) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.shard(number).insert(number, thing);
        number
    }

    /// Takes it out: one caller gets it, and the number is stale from here on.
    pub(crate) fn take(&self, number: u64) -> Option<T> {
        self.shard(number).remove(&number)
    }

    /// Looks at it. Its lock is held meanwhile.
    pub(crate) fn with<R>(&self, number: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.shard(number).get(&number).map(look)
    }
}

impl<T: Clone> Registry<T> {
    pub(crate) fn get(&self, number: u64) -> Option<T> {
        self.with(number, T::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_once_and_never_used_again() {
        let registry = Registry::default();
        let numbers: Vec<u64> = (0..100).map(|thing| registry.insert(thing)).collect();
        for (thing, number) in (0..100).zip(&numbers) {
            assert_eq!(registry.get(*number), Some(thing));
            assert_eq!(registry.take(*number), Some(thing));
            assert_eq!(registry.take(*number), None);
        }
        let again = registry.insert(7);
        assert!(!numbers.contains(&again));
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        let process = Process { first: 10, ..Process::new(1) };
        assert_eq!(process.missing(9, "broker").status, TICKETING_FORKED);
        assert_eq!(process.missing(10, "broker").status, TICKETING_STALE_HANDLE);
        assert_eq!(process.missing(0, "broker").message, "broker is NULL or zero");
    }
}
