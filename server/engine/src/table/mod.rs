//! The applied state: what every node holds once it has applied the log.

mod digest;
mod shards;
mod snapshot;
mod violation;

use std::fmt;

use smallvec::SmallVec;

use self::shards::{Hashed, Shards};
use self::violation::Rule;
use crate::hash::Seed;
use crate::tape::Keyed as _;
use crate::{Effect, Nanos};

pub use self::snapshot::BadSnapshot;
pub use self::violation::Violation;

/// Who holds which key, which tombstones stand, and which token is the next: what
/// the [`Effect`]s of the log make of it, on every node the same.
///
/// A node applies every batch that commits, and builds an engine from the table
/// when it takes office ([`Engine::restore`](crate::Engine::restore)). Times are of
/// its own clock: when a grant or a burial was proposed, as far as this node knows, or
/// later. They are the one thing in which two nodes differ.
///
/// A clone costs the same however much the table holds, and shares its memory until
/// one of the two changes: whoever writes a snapshot takes one and writes at leisure.
///
/// ```
/// use ticketing_engine::{Effect, Table};
///
/// let mut table = Table::new([1, 2]);
/// table.apply(5, Effect::Grant { key: b"seat:12", owner: 7, token: 1, lease_secs: 10 })?;
/// let held = table.get(b"seat:12").expect("it was granted");
/// assert_eq!((held.owner, held.token, held.since), (7, 1, 5));
/// assert_eq!(table.next_token(), 2);
///
/// // What does not fit is refused, and changes nothing.
/// let hash = table.hash();
/// let twice = Effect::Grant { key: b"seat:12", owner: 8, token: 2, lease_secs: 10 };
/// assert!(table.apply(6, twice).is_err());
/// assert_eq!(table.hash(), hash);
/// # Ok::<_, ticketing_engine::Violation>(())
/// ```
#[derive(Clone)]
pub struct Table {
    locks: Shards<Lock>,
    tombstones: Shards<Tombstone>,
    /// The greatest token that was given out; 0: none.
    last_token: u64,
    /// Sum of the digests of all locks and tombstones.
    digests: u64,
}

/// A key that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// The lock's name.
    pub key: &'a [u8],
    /// Owner of the acquire.
    pub owner: u64,
    /// Fencing token.
    pub token: u64,
    /// Length of the lease, in seconds.
    pub lease_secs: u8,
    /// From when the lease counts.
    pub since: Nanos,
}

/// An owner of whom a verify said that it never will hold the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buried<'a> {
    /// The lock's name.
    pub key: &'a [u8],
    /// Owner of the acquire.
    pub owner: u64,
    /// From when the age of the tombstone counts.
    pub since: Nanos,
}

#[derive(Clone, Debug)]
struct Lock {
    key: SmallVec<[u8; 24]>,
    owner: u64,
    token: u64,
    since: Nanos,
    lease_secs: u8,
}

#[derive(Clone, Debug)]
struct Tombstone {
    key: SmallVec<[u8; 24]>,
    owner: u64,
    since: Nanos,
}

impl Table {
    /// A table that holds nothing, whose first token is 1 or whatever greater one
    /// is granted first.
    ///
    /// `hash_seed` is the key of its hash tables. It decides nothing that is seen;
    /// drawn at random, it keeps clients from choosing keys that collide.
    #[must_use]
    pub fn new(hash_seed: [u64; 2]) -> Self {
        let seed = Seed(hash_seed);
        Self { locks: Shards::new(seed), tombstones: Shards::new(seed), last_token: 0, digests: 0 }
    }

    /// Applies the effects of one batch, in their order. Leases that begin in it count
    /// `since` a time of this node's clock.
    ///
    /// # Errors
    /// When one of them does not fit. Those before it have been applied and those
    /// after it have not, so this table is neither the old one nor a new one: the
    /// caller shows it to nobody and stops.
    pub fn apply_batch<'a>(
        &mut self,
        since: Nanos,
        effects: impl Iterator<Item = Effect<'a>>,
    ) -> Result<(), Violation> {
        for (index, effect) in effects.enumerate() {
            self.apply(since, effect).map_err(|violation| Violation { index, ..violation })?;
        }
        Ok(())
    }

    /// Applies one effect. A lease that begins with it counts `since` a time of this
    /// node's clock.
    ///
    /// # Errors
    /// When it does not fit. Nothing has changed then.
    pub fn apply(&mut self, since: Nanos, effect: Effect<'_>) -> Result<(), Violation> {
        let applied = match effect {
            Effect::Grant { key, owner, token, lease_secs } => {
                self.grant(Held { key, owner, token, lease_secs, since })
            }
            Effect::Release { key, token } | Effect::Expire { key, token } => self.end(key, token),
            Effect::HandOff { key, ended, expired: _, owner, token, lease_secs } => {
                self.hand_off(ended, Held { key, owner, token, lease_secs, since })
            }
            Effect::Bury { key, owner } => self.bury(Buried { key, owner, since }),
            Effect::Forget { key, owner } => self.forget(key, owner),
        };
        applied.map_err(|rule| rule.broken_for(effect.key()))
    }

    /// Who holds the key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Held<'_>> {
        self.lock(key).map(Lock::view)
    }

    /// Whether a tombstone of this owner stands.
    #[must_use]
    pub fn is_buried(&self, owner: u64, key: &[u8]) -> bool {
        // Every grant asks, and there hardly ever is one.
        self.tombstones.len() > 0
            && self
                .tombstones
                .find(self.tombstones.seed().of_tombstone(owner, key), |it| it.is(owner, key))
                .is_some()
    }

    /// The held keys, in no order.
    pub fn locks(&self) -> impl Iterator<Item = Held<'_>> {
        self.locks.iter().map(Lock::view)
    }

    /// The tombstones that stand, in no order.
    pub fn tombstones(&self) -> impl Iterator<Item = Buried<'_>> {
        self.tombstones.iter().map(Tombstone::view)
    }

    /// How many keys are held.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.locks.len()
    }

    /// How many tombstones stand.
    #[must_use]
    pub const fn buried(&self) -> usize {
        self.tombstones.len()
    }

    /// The smallest token that may be granted next, or `u64::MAX` when all are spent.
    #[must_use]
    pub const fn next_token(&self) -> u64 {
        self.last_token.saturating_add(1)
    }

    /// The greatest token that was granted; 0: none was.
    #[must_use]
    pub const fn last_token(&self) -> u64 {
        self.last_token
    }

    /// A digest of everything but times: equal on all nodes that have applied the
    /// same log, whatever their builds and machines.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.digests.wrapping_add(digest::of_last_token(self.last_token))
    }

    fn grant(&mut self, held: Held<'_>) -> Result<(), Rule> {
        if let Some(lock) = self.lock(held.key) {
            return Err(Rule::Free { token: held.token, current: lock.token });
        }
        self.check_grant(held)?;
        self.last_token = held.token;
        self.add_lock(held);
        Ok(())
    }

    fn end(&mut self, key: &[u8], token: u64) -> Result<(), Rule> {
        let hash = self.locks.seed().of_key(key);
        self.check_current(hash, key, token)?;
        if let Some(lock) = self.locks.remove(hash, |lock| *lock.key == *key) {
            self.digests = self.digests.wrapping_sub(lock.digest());
        }
        Ok(())
    }

    fn hand_off(&mut self, ended: u64, held: Held<'_>) -> Result<(), Rule> {
        let hash = self.locks.seed().of_key(held.key);
        self.check_current(hash, held.key, ended)?;
        self.check_grant(held)?;
        if let Some(lock) = self.locks.find_mut(hash, |lock| *lock.key == *held.key) {
            self.digests = self.digests.wrapping_sub(lock.digest());
            let Held { owner, token, lease_secs, since, .. } = held;
            let since = if fault!(HandOffKeepsTheAge) { lock.since } else { since };
            *lock = Lock { key: std::mem::take(&mut lock.key), owner, token, lease_secs, since };
            self.digests = self.digests.wrapping_add(lock.digest());
            self.last_token = token;
        }
        Ok(())
    }

    fn bury(&mut self, buried: Buried<'_>) -> Result<(), Rule> {
        let Buried { key, owner, .. } = buried;
        if self.is_buried(owner, key) {
            return Err(Rule::BuriedOnce { owner });
        }
        if let Some(lock) = self.lock(key).filter(|lock| lock.owner == owner) {
            return Err(Rule::HolderLives { owner, current: lock.token });
        }
        self.add_tombstone(buried);
        Ok(())
    }

    fn forget(&mut self, key: &[u8], owner: u64) -> Result<(), Rule> {
        let hash = self.tombstones.seed().of_tombstone(owner, key);
        let gone = self.tombstones.remove(hash, |it| it.is(owner, key)).ok_or(Rule::Buried { owner })?;
        self.digests = self.digests.wrapping_sub(gone.digest());
        Ok(())
    }

    fn check_grant(&self, held: Held<'_>) -> Result<(), Rule> {
        let Held { key, owner, token, .. } = held;
        if token <= self.last_token {
            return Err(Rule::NewToken { token, last: self.last_token });
        }
        if self.is_buried(owner, key) { Err(Rule::NotBuried { owner, token }) } else { Ok(()) }
    }

    fn check_current(&self, hash: u64, key: &[u8], token: u64) -> Result<(), Rule> {
        let current = self.locks.find(hash, |lock| *lock.key == *key).map(|lock| lock.token);
        if current == Some(token) { Ok(()) } else { Err(Rule::Current { token, current }) }
    }

    fn lock(&self, key: &[u8]) -> Option<&Lock> {
        self.locks.find(self.locks.seed().of_key(key), |lock| *lock.key == *key)
    }

    fn add_lock(&mut self, held: Held<'_>) {
        let Held { key, owner, token, lease_secs, since } = held;
        let lock = Lock { key: key.into(), owner, token, since, lease_secs };
        self.digests = self.digests.wrapping_add(lock.digest());
        self.locks.insert(self.locks.seed().of_key(key), lock);
    }

    fn add_tombstone(&mut self, buried: Buried<'_>) {
        let Buried { key, owner, since } = buried;
        let tombstone = Tombstone { key: key.into(), owner, since };
        self.digests = self.digests.wrapping_add(tombstone.digest());
        self.tombstones.insert(self.tombstones.seed().of_tombstone(owner, key), tombstone);
    }
}

/// In numbers: there may be a million locks.
impl fmt::Debug for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { locks, tombstones, last_token, digests: _ } = self;
        out.debug_struct("Table")
            .field("held", &locks.len())
            .field("buried", &tombstones.len())
            .field("last_token", last_token)
            .field("hash", &format_args!("{:016x}", self.hash()))
            .finish()
    }
}

impl Lock {
    fn view(&self) -> Held<'_> {
        let Self { ref key, owner, token, since, lease_secs } = *self;
        Held { key, owner, token, lease_secs, since }
    }

    fn digest(&self) -> u64 {
        digest::of_lock(&self.key, self.owner, self.token, self.lease_secs)
    }
}

impl Hashed for Lock {
    fn hash(&self, seed: Seed) -> u64 {
        seed.of_key(&self.key)
    }
}

impl Tombstone {
    fn is(&self, owner: u64, key: &[u8]) -> bool {
        self.owner == owner && *self.key == *key
    }

    fn view(&self) -> Buried<'_> {
        Buried { key: &self.key, owner: self.owner, since: self.since }
    }

    fn digest(&self) -> u64 {
        digest::of_tombstone(&self.key, self.owner)
    }
}

impl Hashed for Tombstone {
    fn hash(&self, seed: Seed) -> u64 {
        seed.of_tombstone(self.owner, &self.key)
    }
}
