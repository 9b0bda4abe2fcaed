//! A set whose copy costs next to nothing, so that a snapshot is taken beside the
//! work: the values are in a fixed number of parts, which copies share until one
//! of them writes to a part.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::hash::Seed;

/// A part of a million values is then copied in 0.1 ms, which is what an effect may
/// have to wait for after a copy; and a copy counts them all up in a quarter of that.
const PARTS: usize = 1024;

/// Values that are found by a hash of what they are.
pub(super) trait Hashed: Clone {
    /// The same as long as the value is there.
    fn hash(&self, seed: Seed) -> u64;
}

#[derive(Clone)]
pub(super) struct Shards<T> {
    parts: Box<[Arc<HashTable<T>>]>,
    len: usize,
    seed: Seed,
}

impl<T: Hashed> Shards<T> {
    pub(super) fn new(seed: Seed) -> Self {
        let empty = Arc::new(HashTable::new());
        Self { parts: (0..PARTS).map(|_| Arc::clone(&empty)).collect(), len: 0, seed }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn seed(&self) -> Seed {
        self.seed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&T> {
        self.parts[part_of(hash)].find(hash, is)
    }

    pub(super) fn find_mut(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&mut T> {
        Arc::make_mut(&mut self.parts[part_of(hash)]).find_mut(hash, is)
    }

    /// Adds a value that is not there.
    pub(super) fn insert(&mut self, hash: u64, value: T) {
        let seed = self.seed;
        Arc::make_mut(&mut self.parts[part_of(hash)]).insert_unique(hash, value, |it| it.hash(seed));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, hash: u64, is: impl Fn(&T) -> bool) -> Option<T> {
        let part = Arc::make_mut(&mut self.parts[part_of(hash)]);
        let (value, _) = part.find_entry(hash, is).ok()?.remove();
        if part.is_empty() {
            *part = HashTable::new();
        } else if part.len() < part.capacity() / 8 {
            let seed = self.seed;
            part.shrink_to(part.len() * 2, |it| it.hash(seed));
        }
        self.len -= 1;
        Some(value)
    }
}

/// Bits of the hash in which values of one part still differ: a part itself goes
/// by the lowest and the highest ones.
const fn part_of(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}
