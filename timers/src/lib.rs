//! Timers for deadlines that lie a whole number of seconds ahead, O(1) each.
//!
//! Whoever waits 30 seconds and came later is also due later. So there is one
//! list for each number of seconds, and each list is sorted by itself: setting
//! a timer appends, cancelling one unlinks, and the next deadline of all is the
//! earliest of the list heads. No rounding to a tick, no scan, no heap.
//!
//! Time is an argument: nanoseconds of any clock that does not go back.
//!
//! ```
//! use ticketing_timers::Timers;
//!
//! let mut timers = Timers::new();
//! let long = timers.set(0, 2, "long");
//! timers.set(0, 1, "short");
//! assert_eq!(timers.next_deadline(), Some(1_000_000_000));
//! assert_eq!(timers.pop_due(999_999_999), None);
//! assert_eq!(timers.pop_due(1_000_000_000), Some("short"));
//! assert_eq!(timers.cancel(long), Some("long"));
//! assert_eq!(timers.next_deadline(), None);
//! ```

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The most seconds that a timer may lie ahead.
pub const MAX_SECS: u16 = 1023;

const LISTS: usize = MAX_SECS as usize + 1;
const NONE: u32 = u32::MAX;

/// An idle set gives its memory back, but for this many nodes.
const KEPT_NODES: usize = 1024;

/// A timer that was set. It is valid until the timer fires or is cancelled;
/// after that the same value may name another timer, so its owner forgets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u32);

#[derive(Debug)]
struct Node<T> {
    deadline: u64,
    previous: u32,
    /// The next of the list; for a free node, the next free one.
    next: u32,
    secs: u16,
    /// `None`: the node is free.
    value: Option<T>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// A set of timers, each with a value that it gives back when due.
#[derive(Debug)]
pub struct Timers<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    live: usize,
    lists: Box<[List; LISTS]>,
    /// One bit for each list that is not empty.
    occupied: [u64; LISTS / 64],
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Timers<T> {
    /// No timers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            live: 0,
            lists: Box::new([List { head: NONE, tail: NONE }; LISTS]),
            occupied: [0; LISTS / 64],
        }
    }

    /// How many timers are set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether none is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Sets a timer that is due `secs` seconds after `from`; more than
    /// [`MAX_SECS`] count as that many.
    ///
    /// `from` is usually "now". An earlier value is taken too (a lease that
    /// began before), at the cost of a walk past the later ones of that list.
    pub fn set(&mut self, from: u64, secs: u16, value: T) -> TimerId {
        let secs = secs.min(MAX_SECS);
        let deadline = from.saturating_add(u64::from(secs) * SECOND);
        let mut before = self.lists[usize::from(secs)].tail;
        while before != NONE && self.nodes[before as usize].deadline > deadline {
            before = self.nodes[before as usize].previous;
        }
        let list = &mut self.lists[usize::from(secs)];
        let next = if before == NONE { list.head } else { self.nodes[before as usize].next };
        let node = Node { deadline, previous: before, next, secs, value: Some(value) };
        let index = if self.free == NONE {
            self.nodes.push(node);
            // The most timers that fit in memory are far fewer than 2^32 - 1.
            u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        self.link(before, index, next, secs);
        self.live += 1;
        TimerId(index)
    }

    /// Takes a timer back and returns its value; `None` if it is not set.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let node = self.nodes.get_mut(id.0 as usize)?;
        let value = node.value.take()?;
        let (previous, next, secs) = (node.previous, node.next, node.secs);
        node.next = self.free;
        self.free = id.0;
        self.live -= 1;
        let list = &mut self.lists[usize::from(secs)];
        if previous == NONE {
            list.head = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NONE {
            list.tail = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
        if list.head == NONE {
            self.occupied[usize::from(secs) / 64] &= !(1 << (secs % 64));
        }
        if self.live == 0 && self.nodes.len() > KEPT_NODES {
            self.nodes = Vec::new();
            self.free = NONE;
        }
        Some(value)
    }

    /// When the next timer is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.earliest().map(|(_, deadline)| deadline)
    }

    /// The value of the earliest timer whose deadline is `now` or earlier. The timer stays set.
    #[must_use]
    pub fn due(&self, now: u64) -> Option<&T> {
        let (index, deadline) = self.earliest()?;
        if deadline > now { None } else { self.nodes.get(index as usize)?.value.as_ref() }
    }

    /// Takes out one timer whose deadline is `now` or earlier, the earliest first.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        let (index, deadline) = self.earliest()?;
        if deadline > now { None } else { self.cancel(TimerId(index)) }
    }

    fn earliest(&self) -> Option<(u32, u64)> {
        let mut best = None;
        for (word, &bits) in self.occupied.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let index = self.lists[word * 64 + bits.trailing_zeros() as usize].head;
                bits &= bits - 1;
                let deadline = self.nodes[index as usize].deadline;
                if best.is_none_or(|(_, earliest)| deadline < earliest) {
                    best = Some((index, deadline));
                }
            }
        }
        best
    }

    fn link(&mut self, before: u32, index: u32, next: u32, secs: u16) {
        let list = &mut self.lists[usize::from(secs)];
        if before == NONE {
            list.head = index;
        } else {
            self.nodes[before as usize].next = index;
        }
        if next == NONE {
            list.tail = index;
        } else {
            self.nodes[next as usize].previous = index;
        }
        self.occupied[usize::from(secs) / 64] |= 1 << (secs % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_earlier_start_is_sorted_in() {
        let mut timers = Timers::new();
        timers.set(30, 5, 'c');
        timers.set(10, 5, 'a');
        timers.set(20, 5, 'b');
        let due = std::iter::from_fn(|| timers.pop_due(u64::MAX)).collect::<String>();
        assert_eq!(due, "abc");
        assert!(timers.is_empty());
    }

    #[test]
    fn a_timer_far_ahead_is_capped_and_a_spent_one_is_unknown() {
        let mut timers = Timers::new();
        let id = timers.set(0, u16::MAX, ());
        assert_eq!(timers.next_deadline(), Some(u64::from(MAX_SECS) * SECOND));
        assert_eq!(timers.cancel(id), Some(()));
        assert_eq!(timers.cancel(id), None);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0u8..4, 0u16..4, 0u64..3 * SECOND), 1..200)) {
            let mut timers = Timers::new();
            let mut model: Vec<(u64, usize, TimerId)> = Vec::new();
            let mut now = 0;
            for (serial, (what, secs, amount)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        let id = timers.set(now, secs, serial);
                        model.push((now + u64::from(secs) * SECOND, serial, id));
                    }
                    2 if !model.is_empty() => {
                        let (_, serial, id) = model.remove(usize::try_from(amount).unwrap() % model.len());
                        prop_assert_eq!(timers.cancel(id), Some(serial));
                    }
                    _ => {
                        now += amount;
                        let mut fired = std::iter::from_fn(|| timers.pop_due(now)).collect::<Vec<_>>();
                        let mut expected = model.iter().filter(|entry| entry.0 <= now).map(|entry| entry.1).collect::<Vec<_>>();
                        model.retain(|entry| entry.0 > now);
                        fired.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(fired, expected);
                    }
                }
                prop_assert_eq!(timers.next_deadline(), model.iter().map(|entry| entry.0).min());
                prop_assert_eq!(timers.len(), model.len());
            }
        }
    }
}
