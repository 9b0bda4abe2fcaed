//! The held keys.

use hashbrown::HashTable;
use slab::Slab;
use ticketing_timers::TimerId;

use crate::KEPT_SLOTS;
use crate::hash::Seed;
use crate::queue::Queue;

/// One held key. A free key has no entry at all.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) key: Box<[u8]>,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    /// A verify has told somebody of this grant. It is then not given back when its
    /// own connection turns out to be gone: whoever verified it counts on it.
    pub(crate) verified: bool,
    /// Set when the grant has committed: a lease counts from there.
    pub(crate) lease: Option<TimerId>,
    /// Most keys have nobody waiting, so they carry a pointer only.
    pub(crate) queue: Option<Box<Queue>>,
}

impl Lock {
    pub(crate) fn waiters(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn head(&self) -> Option<u32> {
        self.queue.as_ref()?.head()
    }
}

/// All held keys, by number and by name.
#[derive(Debug)]
pub(crate) struct Locks {
    slots: Slab<Lock>,
    by_key: HashTable<u32>,
    seed: Seed,
}

impl Locks {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { slots: Slab::new(), by_key: HashTable::new(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let is_it = |&id: &u32| self.slots.get(id as usize).is_some_and(|lock| *lock.key == *key);
        self.by_key.find(self.seed.of_key(key), is_it).copied()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Lock> {
        self.slots.get(id as usize)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Lock> {
        self.slots.get_mut(id as usize)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: &[u8], owner: u64, token: u64) -> u32 {
        let lock = Lock { key: key.into(), owner, token, verified: false, lease: None, queue: None };
        // The limit of held locks is a u32.
        let id = u32::try_from(self.slots.insert(lock)).unwrap_or(u32::MAX);
        let (slots, seed) = (&self.slots, self.seed);
        let rehash = |&id: &u32| slots.get(id as usize).map_or(0, |lock| seed.of_key(&lock.key));
        self.by_key.insert_unique(seed.of_key(key), id, rehash);
        id
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Lock> {
        let lock = self.slots.try_remove(id as usize)?;
        if let Ok(entry) = self.by_key.find_entry(self.seed.of_key(&lock.key), |&other| other == id) {
            entry.remove();
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            *self = Self::new(self.seed);
        }
        Some(lock)
    }

    /// The numbers of all held keys.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.slots.iter().filter_map(|(id, _)| u32::try_from(id).ok()).collect()
    }
}
