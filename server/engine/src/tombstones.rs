//! Owners of whom a verify said that they never will hold their key.

use std::collections::HashMap;

use ticketing_timers::Timers;

use crate::hash::{Dense, Seed};
use crate::store::Store;
use crate::{ConnId, Nanos};

/// How long a tombstone stands. An acquire that is later than that was lost for good.
const TOMBSTONE_SECS: u16 = 600;

#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) owner: u64,
    pub(crate) key: Box<[u8]>,
    /// Whose verify it was, if it was this office that was asked.
    by: Option<ConnId>,
}

#[derive(Debug)]
pub(crate) struct Tombstones {
    store: Store<Tombstone>,
    timers: Timers<u32>,
    /// How many stand for each connection.
    shares: HashMap<ConnId, u32, Dense>,
    seed: Seed,
}

impl Tombstones {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { store: Store::default(), timers: Timers::new(), shares: HashMap::default(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether this connection may have one more, of `most` for all. It may take up to a
    /// quarter of what is free when it begins: a flood of verifies leaves room to others,
    /// however many connections it comes from.
    pub(crate) fn has_room(&self, most: u32, by: ConnId) -> bool {
        let free = (most as usize).saturating_sub(self.len());
        let share = self.shares.get(&by).map_or(0, |&share| share as usize);
        free > 0 && share < (free / 3).max(1)
    }

    pub(crate) fn contains(&self, owner: u64, key: &[u8]) -> bool {
        self.find(owner, key).is_some()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next_deadline()
    }

    /// One that an earlier office left.
    pub(crate) fn insert(&mut self, owner: u64, key: &[u8]) {
        self.place(Tombstone { owner, key: key.into(), by: None });
    }

    /// One that a verify of this connection asks for.
    pub(crate) fn bury(&mut self, owner: u64, key: &[u8], by: ConnId) {
        *self.shares.entry(by).or_default() += 1;
        self.place(Tombstone { owner, key: key.into(), by: Some(by) });
    }

    fn place(&mut self, tombstone: Tombstone) {
        let seed = self.seed;
        self.store.insert(tombstone, |it| seed.of_tombstone(it.owner, &it.key));
    }

    /// The tombstone has committed: from here its time counts.
    pub(crate) fn committed(&mut self, owner: u64, key: &[u8], now: Nanos) {
        if let Some(id) = self.find(owner, key) {
            self.timers.set(now, TOMBSTONE_SECS, id);
        }
    }

    /// Takes out one tombstone that has stood long enough.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Tombstone> {
        let id = self.timers.pop_due(now)?;
        let seed = self.seed;
        let old = self.store.remove(id, |it| seed.of_tombstone(it.owner, &it.key))?;
        if let Some(by) = old.by
            && let Some(share) = self.shares.get_mut(&by)
        {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(&by);
            }
        }
        Some(old)
    }

    fn find(&self, owner: u64, key: &[u8]) -> Option<u32> {
        // Every acquire asks, and there hardly ever is one.
        if self.store.is_empty() {
            return None;
        }
        let mut found = self.store.with_hash(self.seed.of_tombstone(owner, key));
        found.find(|(_, it)| it.owner == owner && *it.key == *key).map(|(id, _)| id)
    }
}
