//! The held keys.

use std::hint::black_box;

use smallvec::SmallVec;
use ticketing_timers::TimerId;

use crate::hash::Seed;
use crate::queue::Queue;
use crate::store::Store;

/// One held key. A free key has no entry at all.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Most keys are short, and a look at one beside its lock is one cache miss less.
    pub(crate) key: SmallVec<[u8; 24]>,
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
    store: Store<Lock>,
    seed: Seed,
    /// Buffers of [`Locks::fetch`].
    hashes: Vec<u64>,
    found: Vec<u32>,
}

impl Locks {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { store: Store::default(), seed, hashes: Vec::new(), found: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let mut found = self.store.with_hash(self.seed.of_key(key));
        found.find(|(_, lock)| *lock.key == *key).map(|(id, _)| id)
    }

    /// Fetches what the given keys will be looked for in, all of it at a time: one
    /// after the other, each would wait for memory by itself.
    pub(crate) fn fetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.hashes.extend(keys.map(|key| self.seed.of_key(key)));
        self.found.extend(self.hashes.drain(..).filter_map(|hash| self.store.first_with_hash(hash)));
        let tokens = self.found.drain(..).filter_map(|id| Some(self.store.get(id)?.token));
        black_box(tokens.fold(0, u64::wrapping_add));
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Lock> {
        self.store.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Lock> {
        self.store.get_mut(id)
    }

    /// Makes room for so many more keys at once.
    pub(crate) fn reserve(&mut self, more: usize) {
        let seed = self.seed;
        self.store.reserve(more, |lock| seed.of_key(&lock.key));
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: &[u8], owner: u64, token: u64) -> u32 {
        let lock = Lock { key: key.into(), owner, token, verified: false, lease: None, queue: None };
        let seed = self.seed;
        self.store.insert(lock, |lock| seed.of_key(&lock.key))
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Lock> {
        let seed = self.seed;
        self.store.remove(id, |lock| seed.of_key(&lock.key))
    }

    /// The numbers of all held keys.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.store.ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_stays_as_it_is() {
        let mut locks = Locks::new(Seed([1, 2]));
        let id = locks.insert(b"held", 3, 4);
        locks.fetch([b"held".as_slice(), b"free", b"held"].into_iter());
        assert_eq!((locks.len(), locks.find(b"held"), locks.find(b"free")), (1, Some(id), None));
        assert!(locks.hashes.is_empty() && locks.found.is_empty());
    }
}
