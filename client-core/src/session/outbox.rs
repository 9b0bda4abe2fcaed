//! What is to be written, and how much of it was handed to the socket.
//!
//! A frame that was encoded but of which no byte was taken is not bound to this
//! connection: it can be withdrawn, or go elsewhere. So entries stay queued
//! until their first byte is taken, and are encoded anew for each attempt; only
//! the rest of a frame that was cut in the middle is kept as bytes.

use std::collections::VecDeque;

/// About as much as one write takes. More would only be encoded again when the
/// socket is slow.
const CHUNK_BYTES: usize = 32 * 1024;

/// Entries whose request is gone are swept when they are this many and the majority.
const MANY_STALE: usize = 64;

/// One frame to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// The request in this place of the ledger, if it is still the one with this serial.
    Request { index: usize, serial: u64 },
    /// The cancel of that acquire.
    Cancel { index: usize, serial: u64 },
    /// An empty frame.
    KeepAlive,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Entry>,
    /// The rest of a frame that was cut, then the frames of the first entries.
    chunk: Vec<u8>,
    /// How much of `chunk` was taken.
    taken: usize,
    /// Where the frame of each of the first entries starts in `chunk`.
    starts: Vec<usize>,
    /// How many first entries have lost a byte and wait to be popped.
    gone: usize,
    stale: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, entry: Entry) {
        self.queue.push_back(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.taken == self.chunk.len()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.queue.iter().copied()
    }

    /// Notes that the request of an entry is gone; `is_live` tells which are not.
    pub(super) fn note_stale(&mut self, is_live: impl Fn(Entry) -> bool) {
        self.stale += 1;
        if self.stale >= MANY_STALE && self.stale * 2 >= self.queue.len() {
            self.rewind();
            self.queue.retain(|&entry| is_live(entry));
            self.stale = 0;
        }
    }

    /// The bytes for the next write. `encode` appends the frame of an entry, or
    /// nothing if its request is gone.
    pub(super) fn fill(&mut self, mut encode: impl FnMut(Entry, &mut Vec<u8>)) -> &[u8] {
        self.rewind();
        for &entry in &self.queue {
            if self.chunk.len() >= CHUNK_BYTES {
                break;
            }
            self.starts.push(self.chunk.len());
            encode(entry, &mut self.chunk);
        }
        if self.chunk.is_empty() {
            // Nothing but entries without a frame.
            self.queue.drain(..self.starts.len());
            self.starts.clear();
        }
        self.unwritten()
    }

    /// What `fill` gave out last.
    pub(super) fn unwritten(&self) -> &[u8] {
        self.chunk.get(self.taken..).unwrap_or_default()
    }

    /// Notes that the socket took the next `bytes`. The entries of which a byte
    /// is now gone are given out by [`Outbox::pop_gone`].
    pub(super) fn took(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.chunk.len());
        if self.taken == self.chunk.len() {
            self.gone = self.starts.len();
        } else {
            self.gone = self.starts.iter().take_while(|&&start| start < self.taken).count();
            if let Some(&untouched) = self.starts.get(self.gone) {
                self.chunk.truncate(untouched);
            }
        }
        // It may have stopped between two frames.
        if self.taken == self.chunk.len() {
            self.chunk.clear();
            self.taken = 0;
        }
        self.starts.clear();
    }

    pub(super) fn pop_gone(&mut self) -> Option<Entry> {
        self.gone = self.gone.checked_sub(1)?;
        self.queue.pop_front()
    }

    /// Forgets the frames of which no byte was taken.
    fn rewind(&mut self) {
        if let Some(&untouched) = self.starts.first() {
            self.chunk.truncate(untouched);
            self.starts.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_withdrawn_behind_a_whole_frame_is_not_waited_for() {
        let mut outbox = Outbox::default();
        outbox.push(Entry::KeepAlive);
        outbox.push(Entry::Request { index: 0, serial: 1 });
        let frame = |entry, out: &mut Vec<u8>| match entry {
            Entry::KeepAlive => out.push(b'\n'),
            Entry::Request { .. } | Entry::Cancel { .. } => out.extend_from_slice(b"request"),
        };
        assert_eq!(outbox.fill(frame), b"\nrequest");
        outbox.took(1);
        assert!(matches!(outbox.pop_gone(), Some(Entry::KeepAlive)) && outbox.pop_gone().is_none());
        assert_eq!(outbox.fill(|_, _| {}), b"", "the request is gone");
        assert!(outbox.is_empty());
    }
}
