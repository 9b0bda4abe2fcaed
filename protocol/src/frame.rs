//! What travels in each direction, and how it is written.
//!
//! A frame is `op | fixed header of that op | text | LF`. The header is binary
//! and may hold 0x0A, so a reader counts it off before it looks for the LF.

use crate::Key;

/// A request, from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFrame<'a> {
    /// `A`: queue for the key.
    Acquire {
        /// How long to wait, in seconds; 0 is one immediate try that never queues.
        wait: u8,
        /// After how many seconds the server takes the lock back, 1 to 250.
        lease: u8,
        /// Chosen by the client, new for every acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `R`: give the lock back.
    Release {
        /// The fencing token of the grant.
        token: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `C` (extension 1): leave the queue.
    Cancel {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `P` (extension 1): ask for a place in the queue.
    Place {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `V` (extension 1): settle an acquire whose answer was lost.
    Verify {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
}

/// An answer or a notice, from server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// `A`: the lock is yours.
    Granted {
        /// Fencing token, greater than every one before it in this domain.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `G` (extension 1, in place of `A`): the lock is yours, until then.
    GrantedUntil {
        /// Fencing token, greater than every one before it in this domain.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// Milliseconds from the receipt of the acquire to the end of the
        /// lease, rounded down; 0: unknown.
        ends_ms: u32,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `T`: the wait ran out.
    TimedOut {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `B`: not acquired, and this acquire never will be.
    Busy {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `R`: released.
    Released {
        /// Token of the release.
        token: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `N`: not held under that token.
    NotHeld {
        /// Token of the release.
        token: u64,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `P` (extension 1): place in the queue.
    Place {
        /// Owner of the acquire.
        owner: u64,
        /// 1 is the head of the queue; 0: not queued at this node.
        place: u32,
        /// How many wait for the key.
        waiters: u32,
        /// The lock's name.
        key: Key<'a>,
    },
    /// `M`: this node does not lead; a hint about who does.
    Moved {
        /// `host:port` of the leader, or empty: not known.
        address: &'a str,
    },
    /// `L`: who leads now.
    Leader {
        /// `host:port` of the leader, or empty: not known.
        address: &'a str,
    },
    /// `E`: the connection ends, for this [`Reason`](crate::Reason).
    Error {
        /// `[a-z_]+`; a client must survive one that it does not know.
        reason: &'a str,
    },
}

impl ClientFrame<'_> {
    /// Appends the frame to `out`, LF included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Acquire { wait, lease, owner, key } => {
                out.extend_from_slice(&[b'A', wait, lease]);
                out.extend_from_slice(&owner.to_be_bytes());
                end(out, key.as_str());
            }
            Self::Release { token, key } => one_number(out, b'R', token, key),
            Self::Cancel { owner, key } => one_number(out, b'C', owner, key),
            Self::Place { owner, key } => one_number(out, b'P', owner, key),
            Self::Verify { owner, key } => one_number(out, b'V', owner, key),
        }
    }
}

impl ServerFrame<'_> {
    /// Appends the frame to `out`, LF included.
    ///
    /// An address longer than a frame allows is written as empty ("not known"):
    /// no hint is better than a connection that ends over one.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Granted { token, owner, key } => {
                two_numbers(out, b'A', token, owner);
                end(out, key.as_str());
            }
            Self::GrantedUntil { token, owner, ends_ms, key } => {
                two_numbers(out, b'G', token, owner);
                out.extend_from_slice(&ends_ms.to_be_bytes());
                end(out, key.as_str());
            }
            Self::TimedOut { owner, key } => one_number(out, b'T', owner, key),
            Self::Busy { owner, key } => one_number(out, b'B', owner, key),
            Self::Released { token, key } => one_number(out, b'R', token, key),
            Self::NotHeld { token, key } => one_number(out, b'N', token, key),
            Self::Place { owner, place, waiters, key } => {
                out.push(b'P');
                out.extend_from_slice(&owner.to_be_bytes());
                out.extend_from_slice(&place.to_be_bytes());
                out.extend_from_slice(&waiters.to_be_bytes());
                end(out, key.as_str());
            }
            Self::Moved { address } => hint(out, b'M', address),
            Self::Leader { address } => hint(out, b'L', address),
            Self::Error { reason } => {
                out.push(b'E');
                end(out, reason);
            }
        }
    }
}

fn one_number(out: &mut Vec<u8>, op: u8, number: u64, key: Key<'_>) {
    out.push(op);
    out.extend_from_slice(&number.to_be_bytes());
    end(out, key.as_str());
}

fn two_numbers(out: &mut Vec<u8>, op: u8, first: u64, second: u64) {
    out.push(op);
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&second.to_be_bytes());
}

fn hint(out: &mut Vec<u8>, op: u8, address: &str) {
    let fits = address.len() < crate::limits::MAX_FRAME_BYTES && !address.contains('\n');
    out.push(op);
    end(out, if fits { address } else { "" });
}

fn end(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_no_frame_can_carry_is_written_as_not_known() {
        let written = |address: &str| {
            let mut out = Vec::new();
            ServerFrame::Moved { address }.encode(&mut out);
            ServerFrame::Leader { address }.encode(&mut out);
            out
        };
        let longest = "h".repeat(191);
        assert_eq!(written(&longest), format!("M{longest}\nL{longest}\n").into_bytes());
        assert_eq!(written(&"h".repeat(192)), b"M\nL\n");
        assert_eq!(written("a:1\nEbad_key"), b"M\nL\n");
    }
}
