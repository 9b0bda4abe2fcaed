//! The effects of a batch as bytes, for the log.
//!
//! A record is the version (1), then the effects in their order. Each is the
//! number of its kind, the fields of that kind, and the key behind its length (4
//! bytes); all numbers are little-endian. A barrier is the version alone.
//!
//! | kind | effect | fields |
//! |---|---|---|
//! | 1 | grant | lease (1), owner (8), token (8) |
//! | 2 | release | token (8) |
//! | 3 | expire | token (8) |
//! | 4 | release and hand off | token that ends (8), lease (1), owner (8), token (8) |
//! | 5 | expire and hand off | as 4 |
//! | 6 | bury | owner (8) |
//! | 7 | forget | owner (8) |
//!
//! ```
//! use ticketing_engine::{Effect, record};
//!
//! let effects = [Effect::Release { key: b"seat:12", token: 3 }];
//! let mut bytes = Vec::new();
//! record::encode(effects.into_iter(), &mut bytes);
//! assert!(record::decode(&bytes)?.eq(effects));
//!
//! // What was cut short is refused as a whole, and nothing of it is applied.
//! assert!(record::decode(&bytes[..9]).is_err());
//! # Ok::<_, record::BadRecord>(())
//! ```

use std::fmt;

use crate::Effect;
use crate::bytes::{Reader, put_key, put_u64};

/// The format that this build writes, and the only one that it reads.
const VERSION: u8 = 1;

const GRANT: u8 = 1;
const RELEASE: u8 = 2;
const EXPIRE: u8 = 3;
const RELEASE_HAND_OFF: u8 = 4;
const EXPIRE_HAND_OFF: u8 = 5;
const BURY: u8 = 6;
const FORGET: u8 = 7;

/// Appends the record of these effects to `out`.
pub fn encode<'a>(effects: impl Iterator<Item = Effect<'a>>, out: &mut Vec<u8>) {
    out.push(VERSION);
    for effect in effects {
        let key = match effect {
            Effect::Grant { key, owner, token, lease_secs } => {
                out.extend_from_slice(&[GRANT, lease_secs]);
                put_u64(out, owner);
                put_u64(out, token);
                key
            }
            Effect::Release { key, token } => {
                out.push(RELEASE);
                put_u64(out, token);
                key
            }
            Effect::Expire { key, token } => {
                out.push(EXPIRE);
                put_u64(out, token);
                key
            }
            Effect::HandOff { key, ended, expired, owner, token, lease_secs } => {
                out.push(if expired { EXPIRE_HAND_OFF } else { RELEASE_HAND_OFF });
                put_u64(out, ended);
                out.push(lease_secs);
                put_u64(out, owner);
                put_u64(out, token);
                key
            }
            Effect::Bury { key, owner } => {
                out.push(BURY);
                put_u64(out, owner);
                key
            }
            Effect::Forget { key, owner } => {
                out.push(FORGET);
                put_u64(out, owner);
                key
            }
        };
        put_key(out, key);
    }
}

/// Reads a whole record. Any bytes are taken; no memory is allocated for them.
///
/// # Errors
/// When the bytes are not exactly one record of a version that this build knows.
pub fn decode(bytes: &[u8]) -> Result<Effects<'_>, BadRecord> {
    let mut reader = Reader::new(bytes);
    match reader.u8() {
        Some(VERSION) => {}
        Some(version) => return Err(BadRecord { at: 0, fault: Fault::Version(version) }),
        None => return Err(BadRecord { at: 0, fault: Fault::CutShort }),
    }
    // A first look at all of it, so that whoever applies the effects never stops midway.
    let effects = Effects(reader);
    while !reader.is_at_end() {
        next(&mut reader)?;
    }
    Ok(effects)
}

/// The effects of a record that is whole.
#[derive(Clone, Debug)]
pub struct Effects<'a>(Reader<'a>);

impl<'a> Iterator for Effects<'a> {
    type Item = Effect<'a>;

    fn next(&mut self) -> Option<Effect<'a>> {
        next(&mut self.0).ok()
    }
}

fn next<'a>(reader: &mut Reader<'a>) -> Result<Effect<'a>, BadRecord> {
    let at = reader.at();
    let cut_short = BadRecord { at, fault: Fault::CutShort };
    let kind = reader.u8().ok_or(cut_short)?;
    let effect = match kind {
        GRANT => grant(reader),
        RELEASE => number_and_key(reader).map(|(token, key)| Effect::Release { key, token }),
        EXPIRE => number_and_key(reader).map(|(token, key)| Effect::Expire { key, token }),
        RELEASE_HAND_OFF => hand_off(reader, false),
        EXPIRE_HAND_OFF => hand_off(reader, true),
        BURY => number_and_key(reader).map(|(owner, key)| Effect::Bury { key, owner }),
        FORGET => number_and_key(reader).map(|(owner, key)| Effect::Forget { key, owner }),
        kind => return Err(BadRecord { at, fault: Fault::Kind(kind) }),
    };
    effect.ok_or(cut_short)
}

fn grant<'a>(reader: &mut Reader<'a>) -> Option<Effect<'a>> {
    let (lease_secs, owner, token) = (reader.u8()?, reader.u64()?, reader.u64()?);
    Some(Effect::Grant { key: reader.key()?, owner, token, lease_secs })
}

fn hand_off<'a>(reader: &mut Reader<'a>, expired: bool) -> Option<Effect<'a>> {
    let ended = reader.u64()?;
    let (lease_secs, owner, token) = (reader.u8()?, reader.u64()?, reader.u64()?);
    Some(Effect::HandOff { key: reader.key()?, ended, expired, owner, token, lease_secs })
}

fn number_and_key<'a>(reader: &mut Reader<'a>) -> Option<(u64, &'a [u8])> {
    Some((reader.u64()?, reader.key()?))
}

/// Bytes that are no record. A log that holds them is damaged, or was written by
/// a newer build; neither is to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Where the effect begins that cannot be read.
    at: usize,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    CutShort,
    Version(u8),
    Kind(u8),
}

impl fmt::Display for BadRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "record, byte {}: ", self.at)?;
        match self.fault {
            Fault::CutShort => write!(out, "it is cut short here"),
            Fault::Version(version) => write!(out, "it is of version {version}, this build reads {VERSION}"),
            Fault::Kind(kind) => write!(out, "there is no effect of kind {kind}"),
        }
    }
}

impl std::error::Error for BadRecord {}
