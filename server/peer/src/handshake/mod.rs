//! The handshake: both ends prove the secret, before anything else is read.
//!
//! ```text
//! dialler   hello      magic, version, its cluster and node, the cluster and node meant, nonce
//! listener  challenge  magic, version, nonce
//! dialler   proof      over "dialler" and everything said so far
//! listener  verdict    welcome or a refusal, its cluster and node,
//!                      and a proof over "listener", all of that and everything said so far
//! ```
//!
//! Every message has a fixed size, integers are little-endian. What was said
//! is the bytes of hello and challenge and 32 bytes of the TLS connection (RFC
//! 9266; zeros without TLS): versions, ids and nonces of both sides cannot be
//! replaced, and neither a recording nor a proof that comes back to its maker
//! proves anything.
//!
//! The dialler proves first: whoever can reach a listener sees a nonce, and
//! learns neither who listens nor anything that guesses at the secret could be
//! tried on. A dialler believes a refusal that has consequences ("your node id
//! is retired") from a listener that has proved the secret, and from nobody
//! else.
//!
//! Magic and version stand first in every version of the protocol, and the
//! listener answers with its own, so that peers of different versions find out.

mod answer;
mod dial;
mod incoming;
mod messages;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Unfit, Welcomed, answer, part};
pub(crate) use dial::{NoLink, dial};
pub(crate) use incoming::{Incoming, Stranger};
pub(crate) use messages::HELLO;

use bytes::BytesMut;

/// What the proofs know of the TLS connection; zeros without TLS.
pub(crate) type Binding = [u8; 32];

/// Everything that both ends have seen before they prove anything.
fn said(hello: &[u8; HELLO], challenge: &[u8; messages::CHALLENGE], binding: &Binding) -> BytesMut {
    let mut said = BytesMut::with_capacity(hello.len() + challenge.len() + binding.len());
    said.extend_from_slice(hello);
    said.extend_from_slice(challenge);
    said.extend_from_slice(binding);
    said
}

fn nonce() -> Result<[u8; messages::NONCE], getrandom::Error> {
    let mut nonce = [0; messages::NONCE];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}
