//! A table as bytes, for a node that cannot be told the whole log.
//!
//! Clocks of two nodes have nothing in common, so it carries how much of a lease has
//! passed, not since when it counts. Whatever passes between writing and reading is
//! lost from that: on the reading node a lease ends later than it would have, never
//! earlier.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version: 1 |
//! | 8 | the greatest token that was granted |
//! | 8 | hash of the table |
//! | 8, 8 | how many locks, how many tombstones |
//! | each lock | elapsed nanoseconds (8), owner (8), token (8), lease (1), length of the key (4), key |
//! | each tombstone | elapsed nanoseconds (8), owner (8), length of the key (4), key |
//! | 4 | CRC-32 of all before |
//!
//! All numbers are little-endian; locks and tombstones come in no order.

use std::fmt;

use super::{Buried, Held, Table};
use crate::Nanos;
use crate::bytes::{Reader, put_key, put_u64};

/// The format that this build writes, and the only one that it reads.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

impl Table {
    /// Appends a snapshot to `out`, as of `now`: 29 bytes and the key for a lock, 20
    /// and the key for a tombstone. A million locks with keys of 8 bytes are 37 MB,
    /// with the longest keys 157 MB.
    pub fn write(&self, now: Nanos, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(VERSION);
        put_u64(out, self.last_token);
        put_u64(out, self.hash());
        put_u64(out, self.held() as u64);
        put_u64(out, self.buried() as u64);
        for Held { key, owner, token, lease_secs, since } in self.locks() {
            let now = if fault!(SnapshotsAgeLeases) { now + 180 * crate::SECOND } else { now };
            put_u64(out, now.saturating_sub(since));
            put_u64(out, owner);
            put_u64(out, token);
            out.push(lease_secs);
            put_key(out, key);
        }
        for Buried { key, owner, since } in self.tombstones() {
            put_u64(out, now.saturating_sub(since));
            put_u64(out, owner);
            put_key(out, key);
        }
        let written = out.get(start..).unwrap_or_default();
        let checksum = crc32fast::hash(written);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// The table of a snapshot that was received at `now`; `hash_seed` as for
    /// [`Table::new`]. Memory is used for what is there, never for what is announced.
    ///
    /// What counts from before this node's clock began counts from there: later than
    /// it should. A clock that begins at 1000 seconds leaves nothing before it.
    ///
    /// # Errors
    /// When the bytes are not exactly one snapshot of a version that this build
    /// knows, or their checksum is wrong, or what they say breaks a rule of the table.
    pub fn read(now: Nanos, hash_seed: [u64; 2], bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let bad = |at, fault| BadSnapshot { at, fault };
        let version = bytes.first().copied().ok_or(bad(0, Fault::CutShort))?;
        if version != VERSION {
            return Err(bad(0, Fault::Version(version)));
        }
        let checksum_at = bytes.len().saturating_sub(CHECKSUM_BYTES);
        let (content, checksum) = bytes.split_at(checksum_at);
        if crc32fast::hash(content).to_le_bytes() != checksum {
            return Err(bad(checksum_at, Fault::Checksum));
        }

        let mut table = Self::new(hash_seed);
        let mut reader = Reader::new(content);
        let Header { last_token, hash, locks, tombstones } =
            header(&mut reader).ok_or(bad(0, Fault::CutShort))?;
        table.last_token = last_token;
        for _ in 0..locks {
            let at = reader.at();
            let held = lock(&mut reader, now).ok_or(bad(at, Fault::CutShort))?;
            table.restore_lock(held).map_err(|fault| bad(at, fault))?;
        }
        for _ in 0..tombstones {
            let at = reader.at();
            let buried = tombstone(&mut reader, now).ok_or(bad(at, Fault::CutShort))?;
            table.bury(buried).map_err(|_| bad(at, Fault::Tombstone))?;
        }
        if !reader.is_at_end() {
            return Err(bad(reader.at(), Fault::GoesOn));
        }
        if table.hash() != hash {
            return Err(bad(0, Fault::Hash));
        }
        Ok(table)
    }

    fn restore_lock(&mut self, held: Held<'_>) -> Result<(), Fault> {
        if held.token == 0 || held.token > self.last_token {
            return Err(Fault::Token);
        }
        if self.get(held.key).is_some() {
            return Err(Fault::Key);
        }
        self.add_lock(held);
        Ok(())
    }
}

struct Header {
    last_token: u64,
    hash: u64,
    locks: u64,
    tombstones: u64,
}

fn header(reader: &mut Reader<'_>) -> Option<Header> {
    reader.u8()?;
    let (last_token, hash) = (reader.u64()?, reader.u64()?);
    Some(Header { last_token, hash, locks: reader.u64()?, tombstones: reader.u64()? })
}

fn lock<'a>(reader: &mut Reader<'a>, now: Nanos) -> Option<Held<'a>> {
    let since = now.saturating_sub(reader.u64()?);
    let (owner, token, lease_secs) = (reader.u64()?, reader.u64()?, reader.u8()?);
    Some(Held { key: reader.key()?, owner, token, lease_secs, since })
}

fn tombstone<'a>(reader: &mut Reader<'a>, now: Nanos) -> Option<Buried<'a>> {
    let since = now.saturating_sub(reader.u64()?);
    let owner = reader.u64()?;
    Some(Buried { key: reader.key()?, owner, since })
}

/// Bytes that are no snapshot of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSnapshot {
    /// Where the part begins that is wrong.
    at: usize,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    CutShort,
    GoesOn,
    Version(u8),
    Checksum,
    Token,
    Key,
    Tombstone,
    Hash,
}

impl fmt::Display for BadSnapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "snapshot, byte {}: ", self.at)?;
        match self.fault {
            Fault::CutShort => write!(out, "it is cut short here"),
            Fault::GoesOn => write!(out, "it goes on behind its end"),
            Fault::Version(version) => write!(out, "it is of version {version}, this build reads {VERSION}"),
            Fault::Checksum => write!(out, "the checksum is wrong"),
            Fault::Token => write!(out, "a lock is held under a token that was never given out"),
            Fault::Key => write!(out, "a key is held a second time"),
            Fault::Tombstone => write!(out, "a tombstone comes a second time, or of a holder"),
            Fault::Hash => write!(out, "its content does not add up to its hash"),
        }
    }
}

impl std::error::Error for BadSnapshot {}
