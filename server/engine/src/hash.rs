//! One keyed hash for every table: clients choose keys and owners, so an
//! unkeyed one would let them choose collisions too.

use std::hash::{BuildHasher, Hasher as _};

use siphasher::sip::SipHasher13;

use crate::ConnId;

/// Makes hashers with the engine's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(pub(crate) [u64; 2]);

impl Seed {
    pub(crate) fn of_key(self, key: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    pub(crate) fn of_owner(self, owner: u64, lock: u32) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_u64(owner);
        hasher.write_u32(lock);
        hasher.finish()
    }

    pub(crate) fn of_connection(self, connection: ConnId, key: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_u64(connection.0);
        hasher.write(key);
        hasher.finish()
    }

    pub(crate) fn of_tombstone(self, owner: u64, key: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_u64(owner);
        hasher.write(key);
        hasher.finish()
    }
}

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}
