//! Owners of whom a verify said that they never will hold their key.

use ticketing_timers::Timers;

use crate::Nanos;
use crate::hash::Seed;
use crate::store::Store;

/// How long a tombstone stands. An acquire that is later than that was lost for good.
const TOMBSTONE_SECS: u16 = 600;

#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) owner: u64,
    pub(crate) key: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct Tombstones {
    store: Store<Tombstone>,
    timers: Timers<u32>,
    seed: Seed,
}

impl Tombstones {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { store: Store::default(), timers: Timers::new(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn contains(&self, owner: u64, key: &[u8]) -> bool {
        self.find(owner, key).is_some()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next_deadline()
    }

    pub(crate) fn insert(&mut self, owner: u64, key: &[u8]) {
        let seed = self.seed;
        let tombstone = Tombstone { owner, key: key.into() };
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
        self.store.remove(id, |it| seed.of_tombstone(it.owner, &it.key))
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
