//! The FIFO queue of one key: O(1) to join, to leave from any place and to find
//! the head; a place in it costs one addition for 4,096 waiters, and at most 64
//! population counts.
//!
//! Every waiter gets a position, one more than that of the waiter before it. A
//! bit says whether the waiter at a position is still there, and a number how many
//! are in each block of positions. Dead positions are dropped from the front at
//! once, and all over when they are the majority.

use std::collections::VecDeque;

const BITS: u64 = 64;

/// Positions of a block: 64 words of 64 bits.
const BLOCK: u64 = BITS * 64;

/// Below this many positions, dead ones are not worth the work.
const WORTH_PACKING: usize = 256;

/// An empty queue keeps this many slots while its key is held.
const KEPT_SLOTS: usize = 8;

/// Waiters in the order of their arrival, each named by a number of the caller's.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Position of the first slot; a multiple of 64.
    base: u64,
    /// Who stands at each position from `base` on.
    slots: VecDeque<u32>,
    /// One bit a slot: still there. Bits past the last slot are 0.
    alive: VecDeque<u64>,
    /// How many are there in each block of positions, from that of `base` on.
    blocks: VecDeque<u32>,
    len: u32,
}

impl Queue {
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Joins the end and returns the position.
    pub(crate) fn push(&mut self, waiter: u32) -> u64 {
        let slot = self.slots.len() as u64;
        if slot.is_multiple_of(BITS) {
            self.alive.push_back(0);
        }
        if let Some(word) = self.alive.back_mut() {
            *word |= 1 << (slot % BITS);
        }
        let position = self.base + slot;
        if self.block_of(position) == self.blocks.len() {
            self.blocks.push_back(0);
        }
        if let Some(block) = self.blocks.back_mut() {
            *block += 1;
        }
        self.slots.push_back(waiter);
        self.len += 1;
        position
    }

    /// The place of a position's block, for positions from `base` on.
    #[allow(clippy::cast_possible_truncation)] // A block has a slot in memory.
    const fn block_of(&self, position: u64) -> usize {
        (position / BLOCK - self.base / BLOCK) as usize
    }

    /// The waiter who has been here longest.
    pub(crate) fn head(&self) -> Option<u32> {
        if fault!(ServesTheLastFirst) {
            return self.iter().last();
        }
        // The first word always has a live bit: see `drop_dead_front`.
        let word = *self.alive.front()?;
        self.slots.get(word.trailing_zeros() as usize).copied()
    }

    /// Leaves the queue.
    pub(crate) fn remove(&mut self, position: u64) {
        let Some(slot) = position.checked_sub(self.base) else { return };
        let Some(word) = self.alive.get_mut((slot / BITS) as usize) else { return };
        let bit = 1 << (slot % BITS);
        if *word & bit != 0 {
            *word &= !bit;
            self.len -= 1;
            let block = self.block_of(position);
            if let Some(block) = self.blocks.get_mut(block) {
                *block -= 1;
            }
            self.drop_dead_front();
        }
    }

    /// How many stand before `position`.
    pub(crate) fn ahead_of(&self, position: u64) -> u32 {
        let Some(slot) = position.checked_sub(self.base) else { return 0 };
        let (word, bit) = ((slot / BITS) as usize, slot % BITS);
        let block = self.block_of(position);
        let blocks: u32 = self.blocks.iter().take(block).sum();
        // The first block may have lost some of its words.
        let of_block = (position / BLOCK * BLOCK).saturating_sub(self.base) / BITS;
        let words = self.alive.iter().take(word).skip(of_block as usize);
        let whole: u32 = words.map(|word| word.count_ones()).sum();
        let part = self.alive.get(word).map_or(0, |word| (word & ((1 << bit) - 1)).count_ones());
        blocks + whole + part
    }

    /// The waiters from head to end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let is_alive =
            |slot: usize| self.alive.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1);
        self.slots.iter().enumerate().filter(move |&(slot, _)| is_alive(slot)).map(|(_, &waiter)| waiter)
    }

    /// Whether most positions are dead. The caller then calls [`Queue::pack`];
    /// it happens at most once for as many removals as it costs steps.
    pub(crate) fn is_sparse(&self) -> bool {
        self.slots.len() > WORTH_PACKING && self.slots.len() / 4 > self.len as usize
    }

    /// Closes the gaps and tells each waiter's new position.
    pub(crate) fn pack(&mut self, mut moved: impl FnMut(u32, u64)) {
        let mut packed = Self::default();
        for waiter in self.iter() {
            moved(waiter, packed.push(waiter));
        }
        *self = packed;
    }

    fn drop_dead_front(&mut self) {
        if self.len == 0 {
            // The base moves on, so that no position comes twice.
            let base = self.base + self.alive.len() as u64 * BITS;
            if self.slots.capacity() > KEPT_SLOTS {
                *self = Self { base, ..Self::default() };
            } else {
                self.slots.clear();
                self.alive.clear();
                self.blocks.clear();
                self.base = base;
            }
            return;
        }
        while self.alive.front() == Some(&0) {
            self.alive.pop_front();
            self.slots.drain(..64);
            self.base += BITS;
            if self.base.is_multiple_of(BLOCK) {
                self.blocks.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_queue_has_no_head() {
        let mut queue = Queue::default();
        assert_eq!(queue.head(), None);
        let position = queue.push(7);
        queue.remove(position);
        queue.remove(position);
        assert_eq!((queue.head(), queue.len(), queue.ahead_of(position)), (None, 0, 0));
    }

    proptest! {
        /// A step does as much at once as it takes to fill and to empty blocks.
        #[test]
        #[allow(clippy::cast_possible_truncation)] // A small constant.
        fn places_are_right_in_every_block(
            steps in prop::collection::vec((any::<bool>(), 0..3 * BLOCK as usize, any::<prop::sample::Index>()), 1..20),
        ) {
            let mut queue = Queue::default();
            let mut model: Vec<(u32, u64)> = Vec::new();
            let mut serial = 0;
            for (joins, many, index) in steps {
                if joins {
                    model.extend((0..many).map(|_| {
                        serial += 1;
                        (serial, queue.push(serial))
                    }));
                } else {
                    let from = index.index(model.len() + 1);
                    let to = (from + many).min(model.len());
                    model.drain(from..to).for_each(|(_, position)| queue.remove(position));
                }
                if queue.is_sparse() {
                    let mut places = model.iter_mut();
                    queue.pack(|waiter, position| {
                        let entry = places.next().unwrap();
                        assert_eq!(entry.0, waiter);
                        entry.1 = position;
                    });
                }
                prop_assert_eq!(queue.len() as usize, model.len());
                prop_assert_eq!(queue.head(), model.first().map(|entry| entry.0));
                for (place, (_, position)) in (0..).zip(&model) {
                    prop_assert_eq!(queue.ahead_of(*position), place);
                }
            }
        }

        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 1..2000)) {
            let mut queue = Queue::default();
            let mut model: Vec<(u32, u64)> = Vec::new();
            for (serial, (what, index)) in (0..).zip(steps) {
                match what {
                    0..=2 => model.push((serial, queue.push(serial))),
                    3 if !model.is_empty() => queue.remove(model.remove(index.index(model.len())).1),
                    // A burst of leavers makes the queue sparse.
                    _ => model.split_off(model.len().min(3)).iter().for_each(|entry| queue.remove(entry.1)),
                }
                if queue.is_sparse() {
                    queue.pack(|waiter, position| {
                        model.iter_mut().filter(|entry| entry.0 == waiter).for_each(|entry| entry.1 = position);
                    });
                }
                prop_assert_eq!(queue.head(), model.first().map(|entry| entry.0));
                prop_assert_eq!(queue.len() as usize, model.len());
                prop_assert!(queue.iter().eq(model.iter().map(|entry| entry.0)));
                if let Some(place) = model.len().checked_sub(1) {
                    prop_assert_eq!(queue.ahead_of(model[place].1) as usize, place);
                }
            }
        }
    }
}
