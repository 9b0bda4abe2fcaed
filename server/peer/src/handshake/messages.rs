//! The messages as bytes.

use bytes::{Buf as _, BufMut as _};

use crate::identity::{ClusterId, Party};
use crate::refusal::VERSION;
use crate::secret::PROOF;

/// The first bytes of either end. No text begins like this, and no TLS record.
pub(crate) const MAGIC: [u8; 8] = *b"\xfeTICKPR\n";

/// Magic and version.
pub(crate) const PREFIX: usize = MAGIC.len() + 2;

pub(super) const NONCE: usize = 32;
const PARTY: usize = 16 + 8;

pub(crate) const HELLO: usize = PREFIX + 2 * PARTY + NONCE;
pub(super) const CHALLENGE: usize = PREFIX + NONCE;
pub(super) const VERDICT: usize = 1 + PARTY + PROOF;
/// The part of a verdict that its proof is over.
pub(super) const JUDGEMENT: usize = 1 + PARTY;

pub(super) fn prefix() -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    let mut out = &mut bytes[..];
    out.put_slice(&MAGIC);
    out.put_u16_le(VERSION);
    bytes
}

pub(super) fn hello(from: Party, meant: Party, nonce: &[u8; NONCE]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    let mut out = &mut bytes[..];
    out.put_slice(&prefix());
    put_party(from, &mut out);
    put_party(meant, &mut out);
    out.put_slice(nonce);
    bytes
}

/// Who dials, and whom it means.
pub(super) fn read_hello(bytes: &[u8; HELLO]) -> (Party, Party) {
    let mut bytes = bytes.get(PREFIX..).unwrap_or_default();
    (take_party(&mut bytes), take_party(&mut bytes))
}

pub(super) fn challenge(nonce: &[u8; NONCE]) -> [u8; CHALLENGE] {
    let mut bytes = [0; CHALLENGE];
    let mut out = &mut bytes[..];
    out.put_slice(&prefix());
    out.put_slice(nonce);
    bytes
}

pub(super) fn judgement(code: u8, answering: Party) -> [u8; JUDGEMENT] {
    let mut bytes = [0; JUDGEMENT];
    let mut out = &mut bytes[..];
    out.put_u8(code);
    put_party(answering, &mut out);
    bytes
}

/// The code, who answers, and the proof.
pub(super) fn read_verdict(bytes: &[u8; VERDICT]) -> (u8, Party, [u8; PROOF]) {
    let mut bytes = &bytes[..];
    let code = bytes.try_get_u8().unwrap_or_default();
    let answering = take_party(&mut bytes);
    let mut proof = [0; PROOF];
    // The sizes fit, so that nothing here can fall short.
    let _ = bytes.try_copy_to_slice(&mut proof);
    (code, answering, proof)
}

fn put_party(party: Party, out: &mut &mut [u8]) {
    out.put_slice(&party.cluster.0);
    out.put_u64_le(party.node);
}

fn take_party(bytes: &mut &[u8]) -> Party {
    let mut cluster = [0; 16];
    let _ = bytes.try_copy_to_slice(&mut cluster);
    Party { cluster: ClusterId(cluster), node: bytes.try_get_u64_le().unwrap_or_default() }
}
