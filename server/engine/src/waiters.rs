//! Everybody who waits: found by number, by owner, by connection, by deadline.

use ticketing_timers::{TimerId, Timers};

use crate::connections::Connections;
use crate::hash::Seed;
use crate::store::Store;
use crate::{ConnId, Nanos};

/// No waiter.
pub(crate) const NONE: u32 = u32::MAX;

/// One queued acquire.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnId,
    pub(crate) owner: u64,
    /// When its frame arrived.
    pub(crate) received: Nanos,
    /// When its wait runs out.
    pub(crate) deadline: Nanos,
    /// Place in the queue of its key.
    pub(crate) position: u64,
    /// Number of the lock that it waits for.
    pub(crate) lock: u32,
    pub(crate) lease_secs: u8,
    timer: TimerId,
    /// Its neighbours among the waiters of its connection.
    previous: u32,
    next: u32,
}

/// An acquire that has just come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub(crate) connection: ConnId,
    pub(crate) owner: u64,
    pub(crate) received: Nanos,
    pub(crate) wait_secs: u8,
    pub(crate) lease_secs: u8,
}

#[derive(Debug)]
pub(crate) struct Waiters {
    /// Found by owner and lock; one owner may stand there more than once.
    store: Store<Waiter>,
    timers: Timers<u32>,
    /// Arrival of the latest newcomer. Batches of two connections may come in
    /// another order than their bytes; a wait then counts from the later one,
    /// which keeps every timer list sorted at no cost, and no wait short.
    latest_received: Nanos,
    seed: Seed,
}

impl Waiters {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { store: Store::default(), timers: Timers::new(), latest_received: 0, seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn moved(&mut self, id: u32, position: u64) {
        if let Some(waiter) = self.store.get_mut(id) {
            waiter.position = position;
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next_deadline()
    }

    /// One waiter whose wait has run out, the earliest first. It stays until it is removed.
    pub(crate) fn due(&self, now: Nanos) -> Option<u32> {
        self.timers.due(now).copied()
    }

    /// The waiters of this owner on this lock, in no order.
    pub(crate) fn of_owner(&self, owner: u64, lock: u32) -> impl Iterator<Item = (u32, &Waiter)> {
        let found = self.store.with_hash(self.seed.of_owner(owner, lock));
        found.filter(move |(_, waiter)| waiter.owner == owner && waiter.lock == lock)
    }

    /// Adds a waiter; `join` puts its number into the queue and returns its position.
    pub(crate) fn insert(
        &mut self,
        newcomer: Newcomer,
        lock: u32,
        connections: &mut Connections,
        join: impl FnOnce(u32) -> u64,
    ) {
        let Newcomer { connection, owner, received, wait_secs, lease_secs } = newcomer;
        self.latest_received = self.latest_received.max(received);
        let id = self.store.next_id();
        let listed = connections.entry(connection);
        let next = std::mem::replace(&mut listed.first_waiter, id);
        listed.in_flight += 1;
        if let Some(next) = self.store.get_mut(next) {
            next.previous = id;
        }
        let wait_secs = if fault!(WaitsRunOutEarly) { wait_secs - 1 } else { wait_secs };
        let waiter = Waiter {
            connection,
            owner,
            received,
            deadline: self.latest_received.saturating_add(u64::from(wait_secs) * crate::SECOND),
            position: join(id),
            lock,
            lease_secs,
            timer: self.timers.set(self.latest_received, u16::from(wait_secs), id),
            previous: NONE,
            next,
        };
        let seed = self.seed;
        self.store.insert(waiter, |waiter| seed.of_owner(waiter.owner, waiter.lock));
    }

    /// Takes a waiter out of everything but the queue of its key.
    pub(crate) fn remove(&mut self, id: u32, connections: &mut Connections) -> Option<Waiter> {
        let seed = self.seed;
        let waiter = self.store.remove(id, |waiter| seed.of_owner(waiter.owner, waiter.lock))?;
        self.timers.cancel(waiter.timer);
        match self.store.get_mut(waiter.previous) {
            Some(previous) => previous.next = waiter.next,
            None => connections.entry(waiter.connection).first_waiter = waiter.next,
        }
        if let Some(next) = self.store.get_mut(waiter.next) {
            next.previous = waiter.previous;
        }
        Some(waiter)
    }
}
