//! Values under small numbers, found by a hash of what they are.

use hashbrown::HashTable;
use ticketing_timers::Slots;

/// Larger tables give the memory of a crowd that has gone back.
const KEPT: usize = 1024;

/// A set of values. A number stays the same as long as its value is there.
#[derive(Debug)]
pub(crate) struct Store<T> {
    slots: Slots<T>,
    /// Numbers, by the hash of their values. Several values may have the same.
    index: HashTable<u32>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { slots: Slots::new(), index: HashTable::new() }
    }
}

impl<T> Store<T> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|(id, _)| id)
    }

    /// The values with this hash, and now and then another one.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = (u32, &T)> {
        self.index.iter_hash(hash).filter_map(|&id| Some((id, self.get(id)?)))
    }

    /// The number of a value that probably has this hash. Does not look at the value.
    pub(crate) fn first_with_hash(&self, hash: u64) -> Option<u32> {
        self.index.iter_hash(hash).next().copied()
    }

    /// The number that the next value gets.
    pub(crate) fn next_id(&self) -> u32 {
        self.slots.next_id()
    }

    /// Makes room for so many more values at once.
    pub(crate) fn reserve(&mut self, more: usize, hash_of: impl Fn(&T) -> u64) {
        let slots = &self.slots;
        self.index.reserve(more, |&id| slots.get(id).map_or(0, &hash_of));
    }

    pub(crate) fn insert(&mut self, value: T, hash_of: impl Fn(&T) -> u64) -> u32 {
        let hash = hash_of(&value);
        let id = self.slots.insert(value);
        let slots = &self.slots;
        self.index.insert_unique(hash, id, |&id| slots.get(id).map_or(0, &hash_of));
        id
    }

    pub(crate) fn remove(&mut self, id: u32, hash_of: impl Fn(&T) -> u64) -> Option<T> {
        let value = self.slots.remove(id)?;
        if let Ok(entry) = self.index.find_entry(hash_of(&value), |&other| other == id) {
            entry.remove();
        }
        if self.index.capacity() > KEPT && self.index.len() < self.index.capacity() / 8 {
            let slots = &self.slots;
            let rehash = |&id: &u32| slots.get(id).map_or(0, &hash_of);
            self.index.shrink_to(self.index.len() * 2, rehash);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_found_after_the_rest_is_gone() {
        let hash_of = |value: &u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut store = Store::default();
        let ids = (0..100_000).map(|value| store.insert(value, hash_of)).collect::<Vec<_>>();
        let survivor = 7;
        for value in (0..100_000).filter(|&value| value != survivor) {
            assert_eq!(store.remove(ids[value], hash_of), Some(value as u64));
        }
        assert!(store.index.capacity() <= KEPT);
        let found = store.with_hash(hash_of(&(survivor as u64))).collect::<Vec<_>>();
        assert_eq!(found, [(ids[survivor], &(survivor as u64))]);
    }

    #[test]
    fn values_of_one_hash_are_told_apart_by_their_numbers() {
        let mut store = Store::default();
        let (first, second) = (store.insert('a', |_| 1), store.insert('b', |_| 1));
        assert_eq!(store.with_hash(1).count(), 2);
        assert_eq!(store.remove(first, |_| 1), Some('a'));
        assert_eq!(store.remove(first, |_| 1), None);
        assert_eq!(store.with_hash(1).collect::<Vec<_>>(), [(second, &'b')]);
    }
}
