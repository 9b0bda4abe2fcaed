//! The applied state as a specification that runs: what the effects mean, in as few
//! words as possible, and the same for its digest.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use ticketing_engine::{Effect, Nanos, Table};

use crate::machine::{effect as words, known};
use crate::model::Key;
use crate::scene::K;
use crate::schedule::KEYS;
use crate::stories::{OTHER, THIRD};

const ALL_KEYS: [Key; 6] = [KEYS[0], KEYS[1], KEYS[2], K, OTHER, THIRD];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainLock {
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) lease_secs: u8,
    pub(crate) since: Nanos,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) locks: BTreeMap<Key, PlainLock>,
    /// Owner and key, and when the burial was applied.
    pub(crate) tombstones: BTreeMap<(u64, Key), Nanos>,
    pub(crate) last_token: u64,
}

impl Plain {
    pub(crate) fn apply(&mut self, now: Nanos, effect: Effect<'_>) -> Result<(), String> {
        let fits = match effect {
            Effect::Grant { key, owner, token, lease_secs } => {
                !self.locks.contains_key(key) && self.give(now, key, (owner, token, lease_secs))
            }
            Effect::HandOff { key, ended, owner, token, lease_secs, .. } => {
                self.end(key, ended) && self.give(now, key, (owner, token, lease_secs))
            }
            Effect::Release { key, token } | Effect::Expire { key, token } => self.end(key, token),
            Effect::Bury { key, owner } => {
                let key = known(&ALL_KEYS, key);
                self.locks.get(key).is_none_or(|lock| lock.owner != owner)
                    && self.tombstones.insert((owner, key), now).is_none()
            }
            Effect::Forget { key, owner } => {
                self.tombstones.remove(&(owner, known(&ALL_KEYS, key))).is_some()
            }
        };
        if fits { Ok(()) } else { Err(format!("the plain table has no place for: {}", words(effect))) }
    }

    fn give(&mut self, now: Nanos, key: &[u8], (owner, token, lease_secs): (u64, u64, u8)) -> bool {
        let key = known(&ALL_KEYS, key);
        let fits = token > self.last_token && !self.tombstones.contains_key(&(owner, key));
        self.last_token = token;
        self.locks.insert(key, PlainLock { owner, token, lease_secs, since: now });
        fits
    }

    fn end(&mut self, key: &[u8], token: u64) -> bool {
        self.locks.remove(key).is_some_and(|lock| lock.token == token)
    }

    /// The same on another node's clock, which said `there` when this one said `here`.
    pub(crate) fn on_clock(&self, here: Nanos, there: Nanos) -> Self {
        let moved = |since: Nanos| there.saturating_sub(here - since);
        let mut plain = self.clone();
        plain.locks.values_mut().for_each(|lock| lock.since = moved(lock.since));
        plain.tombstones.values_mut().for_each(|since| *since = moved(*since));
        plain
    }

    pub(crate) fn hash(&self) -> u64 {
        let digest = |parts: &[&[u8]]| {
            let mut hasher = SipHasher13::new_with_key(b"nitekcit1elbat_g");
            hasher.write(&parts.concat());
            hasher.finish()
        };
        let locks = self.locks.iter().map(|(key, it)| {
            digest(&[b"L", &it.owner.to_le_bytes(), &it.token.to_le_bytes(), &[it.lease_secs], key])
        });
        let tombstones =
            self.tombstones.keys().map(|(owner, key)| digest(&[b"T", &owner.to_le_bytes(), key]));
        let tokens = digest(&[b"N", &self.last_token.to_le_bytes()]);
        locks.chain(tombstones).fold(tokens, u64::wrapping_add)
    }

    /// Whether the table holds exactly this.
    pub(crate) fn agrees_with(&self, table: &Table) -> Result<(), String> {
        let mut read = Self { last_token: table.last_token(), ..Self::default() };
        for held in table.locks() {
            let (owner, token, lease_secs, since) = (held.owner, held.token, held.lease_secs, held.since);
            let lock = PlainLock { owner, token, lease_secs, since };
            read.locks.insert(known(&ALL_KEYS, held.key), lock);
        }
        for buried in table.tombstones() {
            read.tombstones.insert((buried.owner, known(&ALL_KEYS, buried.key)), buried.since);
        }
        let counts = (table.held(), table.buried());
        if read != *self || counts != (self.locks.len(), self.tombstones.len()) {
            return Err(format!("the table holds {counts:?}: {read:#?}\nand not {self:#?}"));
        }
        let found = ALL_KEYS
            .iter()
            .all(|key| table.get(key).map(|it| it.token) == self.locks.get(key).map(|it| it.token));
        if !found || !self.tombstones.keys().all(|&(owner, key)| table.is_buried(owner, key)) {
            return Err(format!("the table does not find all that it holds: {self:#?}"));
        }
        if table.hash() != self.hash() {
            return Err(format!("the hash is {:x} and not {:x} for {self:#?}", table.hash(), self.hash()));
        }
        Ok(())
    }
}
