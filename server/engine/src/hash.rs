//! A keyed hash for whatever clients choose (keys, owners): an unkeyed one would let
//! them choose collisions too. And a cheap one for the numbers of connections,
//! which they do not choose.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

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

/// Spreads the dense numbers of connections over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DenseHasher(u64);

/// For a map whose keys are numbers of connections.
pub(crate) type Dense = BuildHasherDefault<DenseHasher>;

impl Hasher for DenseHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The odd number nearest to 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // Tables take their buckets from the low bits, which a product mixes least.
        self.0 ^ self.0 >> 32
    }
}
