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

mod slots;

pub use slots::Slots;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The most seconds that a timer may lie ahead.
pub const MAX_SECS: u16 = 1023;

const LISTS: usize = MAX_SECS as usize + 1;
const NONE: u32 = u32::MAX;

/// A timer that was set. It is valid until the timer fires or is cancelled;
/// after that the same value may name another timer, so its owner forgets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u32);

#[derive(Debug)]
struct Node<T> {
    deadline: u64,
    previous: u32,
    next: u32,
    secs: u16,
    value: T,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// A set of timers, each with a value that it gives back when due.
#[derive(Debug)]
pub struct Timers<T> {
    nodes: Slots<Node<T>>,
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
            nodes: Slots::new(),
            lists: Box::new([List { head: NONE, tail: NONE }; LISTS]),
            occupied: [0; LISTS / 64],
        }
    }

    /// How many timers are set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether none is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
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
        while let Some(node) = self.nodes.get(before).filter(|node| node.deadline > deadline) {
            before = node.previous;
        }
        let next = self.nodes.get(before).map_or(self.lists[usize::from(secs)].head, |node| node.next);
        let id = self.nodes.insert(Node { deadline, previous: before, next, secs, value });
        self.join(secs, before, id);
        self.join_back(secs, id, next);
        TimerId(id)
    }

    /// Takes a timer back and returns its value; `None` if it is not set.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let Node { previous, next, secs, value, .. } = self.nodes.remove(id.0)?;
        self.join(secs, previous, next);
        self.join_back(secs, previous, next);
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
        if deadline > now { None } else { self.nodes.get(index).map(|node| &node.value) }
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
                let Some(&Node { deadline, .. }) = self.nodes.get(index) else { continue };
                if best.is_none_or(|(_, earliest)| deadline < earliest) {
                    best = Some((index, deadline));
                }
            }
        }
        best
    }

    /// Makes `next` the one after `previous`, or the head of the list.
    fn join(&mut self, secs: u16, previous: u32, next: u32) {
        if let Some(node) = self.nodes.get_mut(previous) {
            node.next = next;
            return;
        }
        self.lists[usize::from(secs)].head = next;
        let bit = 1 << (secs % 64);
        let word = &mut self.occupied[usize::from(secs) / 64];
        *word = if next == NONE { *word & !bit } else { *word | bit };
    }

    /// Makes `previous` the one before `next`, or the tail of the list.
    fn join_back(&mut self, secs: u16, previous: u32, next: u32) {
        match self.nodes.get_mut(next) {
            Some(node) => node.previous = previous,
            None => self.lists[usize::from(secs)].tail = previous,
        }
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
