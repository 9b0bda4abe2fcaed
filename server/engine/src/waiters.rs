//! Everybody who waits: found by number, by owner, by connection, by deadline.

use hashbrown::HashTable;
use slab::Slab;
use ticketing_timers::{TimerId, Timers};

use crate::connections::Connections;
use crate::hash::Seed;
use crate::{ConnId, KEPT_SLOTS, Nanos};

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
    slots: Slab<Waiter>,
    /// By owner and lock; one owner may stand there more than once.
    by_owner: HashTable<u32>,
    timers: Timers<u32>,
    /// Arrival of the latest newcomer. Batches of two connections may come in
    /// another order than their bytes; a wait then counts from the later one,
    /// which keeps every timer list sorted at no cost, and no wait short.
    latest_received: Nanos,
    seed: Seed,
}

impl Waiters {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            slots: Slab::new(),
            by_owner: HashTable::new(),
            timers: Timers::new(),
            latest_received: 0,
            seed,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn moved(&mut self, id: u32, position: u64) {
        if let Some(waiter) = self.slots.get_mut(id as usize) {
            waiter.position = position;
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next_deadline()
    }

    /// The waiters of this owner on this lock, in no order.
    pub(crate) fn of_owner(&self, owner: u64, lock: u32) -> impl Iterator<Item = (u32, &Waiter)> {
        self.by_owner
            .iter_hash(self.seed.of_owner(owner, lock))
            .filter_map(|&id| Some((id, self.slots.get(id as usize)?)))
            .filter(move |(_, waiter)| waiter.owner == owner && waiter.lock == lock)
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
        // The limit of waiters is a u32.
        let id = u32::try_from(self.slots.vacant_key()).unwrap_or(NONE);
        let timer = self.timers.set(self.latest_received, u16::from(wait_secs), id);
        let listed = connections.entry(connection);
        let next = std::mem::replace(&mut listed.first_waiter, id);
        listed.in_flight += 1;
        if let Some(next) = self.slots.get_mut(next as usize) {
            next.previous = id;
        }
        let deadline = self.latest_received.saturating_add(u64::from(wait_secs) * crate::SECOND);
        let position = join(id);
        self.slots.insert(Waiter {
            connection,
            owner,
            received,
            deadline,
            position,
            lock,
            lease_secs,
            timer,
            previous: NONE,
            next,
        });
        let (slots, seed) = (&self.slots, self.seed);
        let rehash =
            |&id: &u32| slots.get(id as usize).map_or(0, |waiter| seed.of_owner(waiter.owner, waiter.lock));
        self.by_owner.insert_unique(seed.of_owner(owner, lock), id, rehash);
    }

    /// Takes a waiter out of everything but the queue of its key.
    pub(crate) fn remove(&mut self, id: u32, connections: &mut Connections) -> Option<Waiter> {
        let waiter = self.slots.try_remove(id as usize)?;
        self.timers.cancel(waiter.timer);
        let hash = self.seed.of_owner(waiter.owner, waiter.lock);
        if let Ok(entry) = self.by_owner.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        match self.slots.get_mut(waiter.previous as usize) {
            Some(previous) => previous.next = waiter.next,
            None => connections.entry(waiter.connection).first_waiter = waiter.next,
        }
        if let Some(next) = self.slots.get_mut(waiter.next as usize) {
            next.previous = waiter.previous;
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            *self = Self { latest_received: self.latest_received, ..Self::new(self.seed) };
        }
        Some(waiter)
    }

    /// One waiter whose wait has run out, the earliest first. It stays until it is removed.
    pub(crate) fn due(&self, now: Nanos) -> Option<u32> {
        self.timers.due(now).copied()
    }
}
