//! A list of values that each name a key, with all the key bytes in one buffer:
//! a turn of thousands of answers costs two buffers, which the next turn reuses.

use crate::{Answer, Effect};

/// Larger buffers are not kept for reuse.
const KEPT_ENTRIES: usize = 4096;
const KEPT_KEY_BYTES: usize = 32;

/// A value that names a key and can be given another one.
pub(crate) trait Keyed: Copy {
    type With<'b>;

    fn key(&self) -> &[u8];

    fn with_key<'b>(&self, key: &'b [u8]) -> Self::With<'b>;
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    start: u32,
    len: u32,
}

/// Values of `T` (with an empty key) and, beside each, the place of its key.
#[derive(Debug)]
pub(crate) struct Tape<T> {
    entries: Vec<Entry<T>>,
    bytes: Vec<u8>,
}

impl<T> Default for Tape<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), bytes: Vec::new() }
    }
}

impl<T> Tape<T> {
    pub(crate) fn push(&mut self, value: T, key: &[u8]) {
        // Keys are short and turns bounded: 4 GiB of keys in one turn is out of reach.
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let len = u32::try_from(key.len()).unwrap_or(0);
        self.bytes.extend_from_slice(key);
        self.entries.push(Entry { value, start, len });
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Empties the tape. Its buffers stay for the next turn, unless an unusually
    /// large one left them unusually large.
    pub(crate) fn clear(&mut self) {
        if self.entries.capacity() > KEPT_ENTRIES || self.bytes.capacity() > KEPT_ENTRIES * KEPT_KEY_BYTES {
            *self = Self::default();
        }
        self.entries.clear();
        self.bytes.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&T, &[u8])> {
        self.entries.iter().map(|entry| (&entry.value, self.key_of(entry)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|entry| &mut entry.value)
    }

    pub(crate) fn get(&self, index: usize) -> Option<(&T, &[u8])> {
        self.entries.get(index).map(|entry| (&entry.value, self.key_of(entry)))
    }

    /// Keeps the values that are wanted.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(&T, &[u8]) -> bool) {
        let Self { entries, bytes } = self;
        entries.retain(|entry| wanted(&entry.value, entry.key_in(bytes)));
        let used: usize = self.entries.iter().map(|entry| entry.len as usize).sum();
        if used < self.bytes.len() / 2 {
            let mut whole = Self::default();
            for entry in std::mem::take(&mut self.entries) {
                let key = entry.key_in(&self.bytes);
                whole.push(entry.value, key);
            }
            *self = whole;
        }
    }

    fn key_of(&self, entry: &Entry<T>) -> &[u8] {
        entry.key_in(&self.bytes)
    }
}

impl<T> Entry<T> {
    fn key_in<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

impl Keyed for Answer<'_> {
    type With<'b> = Answer<'b>;

    fn key(&self) -> &[u8] {
        match *self {
            Self::Granted { key, .. }
            | Self::TimedOut { key, .. }
            | Self::Busy { key, .. }
            | Self::Released { key, .. }
            | Self::NotHeld { key, .. }
            | Self::Place { key, .. }
            | Self::Verified { key, .. }
            | Self::VerifiedBusy { key, .. } => key,
            Self::NotLeader | Self::CloseUnknown | Self::CloseOverloaded => &[],
        }
    }

    fn with_key<'b>(&self, key: &'b [u8]) -> Answer<'b> {
        match *self {
            Self::Granted { token, owner, ends_ms, .. } => Answer::Granted { token, owner, ends_ms, key },
            Self::TimedOut { owner, .. } => Answer::TimedOut { owner, key },
            Self::Busy { owner, .. } => Answer::Busy { owner, key },
            Self::Released { token, .. } => Answer::Released { token, key },
            Self::NotHeld { token, .. } => Answer::NotHeld { token, key },
            Self::Place { owner, place, waiters, .. } => Answer::Place { owner, place, waiters, key },
            Self::Verified { token, owner, .. } => Answer::Verified { token, owner, key },
            Self::VerifiedBusy { owner, .. } => Answer::VerifiedBusy { owner, key },
            Self::NotLeader => Answer::NotLeader,
            Self::CloseUnknown => Answer::CloseUnknown,
            Self::CloseOverloaded => Answer::CloseOverloaded,
        }
    }
}

impl Keyed for Effect<'_> {
    type With<'b> = Effect<'b>;

    fn key(&self) -> &[u8] {
        match *self {
            Self::Grant { key, .. }
            | Self::Release { key, .. }
            | Self::Expire { key, .. }
            | Self::HandOff { key, .. }
            | Self::Bury { key, .. }
            | Self::Forget { key, .. } => key,
        }
    }

    fn with_key<'b>(&self, key: &'b [u8]) -> Effect<'b> {
        match *self {
            Self::Grant { owner, token, lease_secs, .. } => Effect::Grant { key, owner, token, lease_secs },
            Self::Release { token, .. } => Effect::Release { key, token },
            Self::Expire { token, .. } => Effect::Expire { key, token },
            Self::HandOff { ended, expired, owner, token, lease_secs, .. } => {
                Effect::HandOff { key, ended, expired, owner, token, lease_secs }
            }
            Self::Bury { owner, .. } => Effect::Bury { key, owner },
            Self::Forget { owner, .. } => Effect::Forget { key, owner },
        }
    }
}
