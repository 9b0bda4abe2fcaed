//! Values under small numbers, whose memory goes back when they go.

use std::array;

/// Values that are allocated together: one bit of a `u64` each.
const CHUNK: usize = 64;
const FULL: u64 = u64::MAX;

#[derive(Debug)]
struct Chunk<T> {
    values: [Option<T>; CHUNK],
    /// One bit for each value that is there.
    used: u64,
}

/// A set of values, each under a number that stays the same while it is there.
///
/// Every operation is O(1). Values live in chunks of 64; a chunk without any is
/// given back, so that one long-lived value does not hold the memory of a crowd
/// that came and went around it.
///
/// ```
/// use ticketing_timers::Slots;
///
/// let mut slots = Slots::new();
/// let id = slots.insert("a");
/// assert_eq!(slots.get(id), Some(&"a"));
/// assert_eq!(slots.remove(id), Some("a"));
/// assert_eq!(slots.remove(id), None);
/// ```
#[derive(Debug)]
pub struct Slots<T> {
    chunks: Vec<Option<Box<Chunk<T>>>>,
    /// Each chunk that has room, once; also those that were given back.
    with_room: Vec<u32>,
    /// A chunk for whatever comes next, so that a value that comes and goes does
    /// not cost an allocation each time.
    spare: Option<Box<Chunk<T>>>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), with_room: Vec::new(), spare: None, len: 0 }
    }

    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value under this number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&T> {
        let chunk = self.chunks.get(id as usize / CHUNK)?.as_ref()?;
        chunk.values[id as usize % CHUNK].as_ref()
    }

    /// The value under this number.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(id as usize / CHUNK)?.as_mut()?;
        chunk.values[id as usize % CHUNK].as_mut()
    }

    /// The values and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = (0..).step_by(CHUNK).zip(&self.chunks);
        let filled = chunks.filter_map(|(first, chunk)| Some((first, chunk.as_ref()?)));
        filled.flat_map(|(first, chunk)| {
            (first..).zip(&chunk.values).filter_map(|(id, value)| Some((id, value.as_ref()?)))
        })
    }

    /// The number that the next value gets.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        let number = self.with_room.last().map_or(self.chunks.len(), |&number| number as usize);
        let used = self.chunks.get(number).and_then(Option::as_ref).map_or(0, |chunk| chunk.used);
        // 2^32 values do not fit into memory.
        u32::try_from(number * CHUNK).unwrap_or(u32::MAX) + used.trailing_ones()
    }

    /// Adds a value and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let id = self.next_id();
        let (number, slot) = (id as usize / CHUNK, id as usize % CHUNK);
        if number == self.chunks.len() {
            self.chunks.push(None);
            self.with_room.push(id / 64);
        }
        let spare = &mut self.spare;
        let empty = || Box::new(Chunk { values: array::from_fn(|_| None), used: 0 });
        let chunk = self.chunks[number].get_or_insert_with(|| spare.take().unwrap_or_else(empty));
        chunk.values[slot] = Some(value);
        chunk.used |= 1 << slot;
        if chunk.used == FULL {
            self.with_room.pop();
        }
        self.len += 1;
        id
    }

    /// Takes a value out.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let (number, slot) = (id as usize / CHUNK, id as usize % CHUNK);
        let place = self.chunks.get_mut(number)?;
        let chunk = place.as_mut()?;
        let value = chunk.values[slot].take()?;
        if chunk.used == FULL {
            self.with_room.push(id / 64);
        }
        chunk.used &= !(1 << slot);
        if chunk.used == 0 {
            self.spare = place.take();
        }
        self.len -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chunk_without_values_is_given_back() {
        let mut slots = Slots::new();
        let ids = (0..100_000).map(|value| slots.insert(value)).collect::<Vec<_>>();
        let survivors = [7, 99_999];
        ids.into_iter()
            .filter(|id| !survivors.contains(id))
            .for_each(|id| assert!(slots.remove(id).is_some()));
        assert_eq!(slots.chunks.iter().flatten().count(), 2);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(7, &7), (99_999, &99_999)]);
        for value in 0..99_998 {
            slots.insert(value);
        }
        assert_eq!(slots.chunks.len(), 100_000_usize.div_ceil(CHUNK), "room is used before there is more");
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 1..3000)) {
            let mut slots = Slots::new();
            let mut model: Vec<(u32, usize)> = Vec::new();
            for (value, (what, index)) in steps.into_iter().enumerate() {
                if what < 2 || model.is_empty() {
                    let expected = slots.next_id();
                    let id = slots.insert(value);
                    prop_assert_eq!(id, expected);
                    prop_assert!(model.iter().all(|entry| entry.0 != id));
                    model.push((id, value));
                } else {
                    let gone = if what == 4 { std::mem::take(&mut model) } else { vec![model.remove(index.index(model.len()))] };
                    for (id, value) in gone {
                        prop_assert_eq!(slots.remove(id), Some(value));
                    }
                }
                prop_assert_eq!(slots.len(), model.len());
                prop_assert!(model.iter().all(|&(id, value)| slots.get(id) == Some(&value)));
            }
        }
    }
}
