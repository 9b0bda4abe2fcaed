//! The yardstick: what two processes on this machine can do at best when they
//! exchange frames of the product's sizes, in the product's pattern, and decide
//! nothing.
//!
//! A cycle is two round trips, like acquire and release. Its absolute rate says
//! something about the machine; only the product's share of it, measured in the
//! same run, says something about the product.

pub(crate) mod client;
pub(crate) mod server;

/// One round trip: its op and the sizes of both frames, as an acquire and a
/// release of an eight-byte key have them on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    op: u8,
    request_bytes: usize,
    answer_bytes: usize,
}

const ACQUIRE: Exchange = Exchange { op: b'A', request_bytes: 20, answer_bytes: 26 };
const RELEASE: Exchange = Exchange { op: b'R', request_bytes: 18, answer_bytes: 18 };

/// The head of every frame: the op and the number that binds answer to request.
const HEAD_BYTES: usize = 1 + 8;

impl Exchange {
    const fn of(op: u8) -> Option<Self> {
        match op {
            b'A' => Some(ACQUIRE),
            b'R' => Some(RELEASE),
            _ => None,
        }
    }
}

/// Appends a frame of `bytes` bytes.
fn encode(op: u8, id: u64, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    out.push(op);
    out.extend_from_slice(&id.to_be_bytes());
    out.resize(end, 0);
}

/// The exchange and the number at the start of `input`; `None`: more bytes are needed.
fn head(input: &[u8]) -> Result<Option<(Exchange, u64)>, std::io::Error> {
    let Some((&[op, ref id @ ..], _)) = input.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let exchange = Exchange::of(op).ok_or_else(|| std::io::Error::other(format!("unknown op {op:#04x}")))?;
    Ok(Some((exchange, u64::from_be_bytes(*id))))
}
