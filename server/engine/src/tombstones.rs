//! Owners of whom a verify said that they never will hold their key.

use hashbrown::HashTable;
use slab::Slab;
use ticketing_timers::{TimerId, Timers};

use crate::hash::Seed;
use crate::{KEPT_SLOTS, Nanos};

/// How long a tombstone stands. An acquire that is later than that was lost for good.
const TOMBSTONE_SECS: u16 = 600;

#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) owner: u64,
    pub(crate) key: Box<[u8]>,
    timer: Option<TimerId>,
}

#[derive(Debug)]
pub(crate) struct Tombstones {
    slots: Slab<Tombstone>,
    by_name: HashTable<u32>,
    timers: Timers<u32>,
    seed: Seed,
}

impl Tombstones {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { slots: Slab::new(), by_name: HashTable::new(), timers: Timers::new(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn contains(&self, owner: u64, key: &[u8]) -> bool {
        self.find(owner, key).is_some()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next_deadline()
    }

    pub(crate) fn insert(&mut self, owner: u64, key: &[u8]) {
        let id = self.slots.insert(Tombstone { owner, key: key.into(), timer: None });
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        let (slots, seed) = (&self.slots, self.seed);
        let rehash = |&id: &u32| slots.get(id as usize).map_or(0, |it| seed.of_tombstone(it.owner, &it.key));
        self.by_name.insert_unique(seed.of_tombstone(owner, key), id, rehash);
    }

    /// The tombstone has committed: from here its time counts.
    pub(crate) fn committed(&mut self, owner: u64, key: &[u8], now: Nanos) {
        let Some(id) = self.find(owner, key) else { return };
        let timer = self.timers.set(now, TOMBSTONE_SECS, id);
        if let Some(tombstone) = self.slots.get_mut(id as usize) {
            tombstone.timer = Some(timer);
        }
    }

    /// Takes out one tombstone that has stood long enough.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Tombstone> {
        let id = self.timers.pop_due(now)?;
        let tombstone = self.slots.try_remove(id as usize)?;
        let hash = self.seed.of_tombstone(tombstone.owner, &tombstone.key);
        if let Ok(entry) = self.by_name.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            *self = Self::new(self.seed);
        }
        Some(tombstone)
    }

    fn find(&self, owner: u64, key: &[u8]) -> Option<u32> {
        // Every acquire asks, and there hardly ever is one.
        if self.slots.is_empty() {
            return None;
        }
        let is_it =
            |&id: &u32| self.slots.get(id as usize).is_some_and(|it| it.owner == owner && *it.key == *key);
        self.by_name.find(self.seed.of_tombstone(owner, key), is_it).copied()
    }
}
