//! What two nodes compare to see that they hold the same.
//!
//! The digest of a table is the sum of the digests of what is in it, so that it
//! costs the same however much there is, and the order of entries does not show.
//! Its key is fixed and its input is bytes in a fixed order: it is the same on
//! every node, machine and build. It finds nodes that have come apart; it is no
//! proof against somebody who makes up entries that add up to the same.

use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;

const KEY: [u64; 2] = [0x7469_636b_6574_696e, 0x675f_7461_626c_6531];

pub(super) fn of_lock(key: &[u8], owner: u64, token: u64, lease_secs: u8) -> u64 {
    // Two for each hand-off: many small parts cost the hasher more than what is in them.
    let mut head = [b'L'; 18];
    head[1..9].copy_from_slice(&owner.to_le_bytes());
    head[9..17].copy_from_slice(&token.to_le_bytes());
    head[17] = lease_secs;
    digest(&[&head, key])
}

pub(super) fn of_tombstone(key: &[u8], owner: u64) -> u64 {
    digest(&[b"T", &owner.to_le_bytes(), key])
}

pub(super) fn of_last_token(token: u64) -> u64 {
    digest(&[b"N", &token.to_le_bytes()])
}

/// Only the last part may vary in length, or two lists could be the same bytes.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(KEY[0], KEY[1]);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}
