//! The incremental reader.
//!
//! What it says depends on the bytes alone, never on how they were cut: a
//! verdict falls at a fixed byte of the stream (a bad op at that byte, an
//! overlong frame at its 193rd byte, everything else at the LF).

use std::marker::PhantomData;

use crate::limits::{LEASE_SECS, MAX_FRAME_BYTES};
use crate::{ClientFrame, InvalidKey, Key, Reason, ServerFrame};

/// Whether extension 1 was agreed on in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Extension {
    /// Base version 1: `G`, `C`, `P` and `V` are unknown ops.
    #[default]
    Off,
    /// Extension 1.
    On,
}

/// Why a stream of frames cannot be read on. Fatal to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A frame with more than 192 bytes.
    #[error("a frame has more than {MAX_FRAME_BYTES} bytes")]
    LineTooLong,
    /// An op that this direction and extension do not have.
    #[error("unknown op {0:#04x}")]
    BadOp(u8),
    /// The key of a frame breaks a rule.
    #[error("bad key: {0}")]
    BadKey(InvalidKey),
    /// A lease outside 1 to 250 seconds.
    #[error("a lease of {0} s; it must be {start} to {end} s", start = LEASE_SECS.start(), end = LEASE_SECS.end())]
    BadLease(u8),
    /// The text of an `M`, `L` or `E` frame is not what the contract says.
    #[error("bad text in a frame of op {0:?}")]
    BadText(char),
}

impl Malformed {
    /// The reason with which a server answers.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::LineTooLong => Reason::LineTooLong,
            // Only a server writes texts, so no server ever reads a bad one.
            Self::BadOp(_) | Self::BadText(_) => Reason::BadOp,
            Self::BadKey(_) => Reason::BadKey,
            Self::BadLease(_) => Reason::BadLease,
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ClientToServer {}
    impl Sealed for super::ServerToClient {}
}

/// Which way a stream goes, and so which frames it has.
pub trait Direction: sealed::Sealed {
    /// Its frames, borrowed from the bytes that were fed.
    type Frame<'a>: Copy;

    /// Bytes of the fixed header of `op`; `None`: not an op of this direction.
    #[doc(hidden)]
    fn header_bytes(op: u8, extension: Extension) -> Option<usize>;

    /// Gives `header` (of exactly that length) and `text` their meaning.
    #[doc(hidden)]
    fn read<'a>(op: u8, header: &[u8], text: &'a [u8]) -> Result<Self::Frame<'a>, Malformed>;
}

/// From client to server.
#[derive(Clone, Copy, Debug)]
pub enum ClientToServer {}

/// From server to client.
#[derive(Clone, Copy, Debug)]
pub enum ServerToClient {}

impl Direction for ClientToServer {
    type Frame<'a> = ClientFrame<'a>;

    fn header_bytes(op: u8, extension: Extension) -> Option<usize> {
        match (op, extension) {
            (b'A', _) => Some(10),
            (b'R', _) | (b'C' | b'P' | b'V', Extension::On) => Some(8),
            _ => None,
        }
    }

    fn read<'a>(op: u8, header: &[u8], text: &'a [u8]) -> Result<ClientFrame<'a>, Malformed> {
        if op == b'A' {
            let (wait, lease) = (header[0], header[1]);
            if !LEASE_SECS.contains(&lease) {
                return Err(Malformed::BadLease(lease));
            }
            return Ok(ClientFrame::Acquire { wait, lease, owner: u64_at(header, 2), key: key(text)? });
        }
        let (number, key) = (u64_at(header, 0), key(text)?);
        Ok(match op {
            b'R' => ClientFrame::Release { token: number, key },
            b'C' => ClientFrame::Cancel { owner: number, key },
            b'P' => ClientFrame::Place { owner: number, key },
            b'V' => ClientFrame::Verify { owner: number, key },
            _ => return Err(Malformed::BadOp(op)),
        })
    }
}

impl Direction for ServerToClient {
    type Frame<'a> = ServerFrame<'a>;

    fn header_bytes(op: u8, extension: Extension) -> Option<usize> {
        match (op, extension) {
            (b'A', _) => Some(16),
            (b'G', Extension::On) => Some(20),
            (b'P', Extension::On) => Some(16),
            (b'T' | b'B' | b'R' | b'N', _) => Some(8),
            (b'M' | b'L' | b'E', _) => Some(0),
            _ => None,
        }
    }

    fn read<'a>(op: u8, header: &[u8], text: &'a [u8]) -> Result<ServerFrame<'a>, Malformed> {
        match op {
            b'M' => return Ok(ServerFrame::Moved { address: address(op, text)? }),
            b'L' => return Ok(ServerFrame::Leader { address: address(op, text)? }),
            b'E' => return Ok(ServerFrame::Error { reason: reason(text)? }),
            _ => {}
        }
        let (number, key) = (u64_at(header, 0), key(text)?);
        Ok(match op {
            b'A' => ServerFrame::Granted { token: number, owner: u64_at(header, 8), key },
            b'G' => ServerFrame::GrantedUntil {
                token: number,
                owner: u64_at(header, 8),
                ends_ms: u32_at(header, 16),
                key,
            },
            b'P' => ServerFrame::Place {
                owner: number,
                place: u32_at(header, 8),
                waiters: u32_at(header, 12),
                key,
            },
            b'T' => ServerFrame::TimedOut { owner: number, key },
            b'B' => ServerFrame::Busy { owner: number, key },
            b'R' => ServerFrame::Released { token: number, key },
            b'N' => ServerFrame::NotHeld { token: number, key },
            _ => return Err(Malformed::BadOp(op)),
        })
    }
}

fn key(text: &[u8]) -> Result<Key<'_>, Malformed> {
    Key::from_bytes(text).map_err(Malformed::BadKey)
}

fn address(op: u8, text: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(text).map_err(|_| Malformed::BadText(char::from(op)))
}

fn reason(text: &[u8]) -> Result<&str, Malformed> {
    let legal = !text.is_empty() && text.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
    if legal { address(b'E', text) } else { Err(Malformed::BadText('E')) }
}

fn u64_at(header: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_be_bytes(bytes)
}

fn u32_at(header: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[at..at + 4]);
    u32::from_be_bytes(bytes)
}

/// Reads frames out of a stream that arrives in pieces.
///
/// It holds at most one incomplete frame (192 bytes), and nothing between
/// frames: an idle connection costs no buffer.
#[derive(Debug)]
pub struct Decoder<D> {
    /// The bytes of the frame that is not complete yet.
    open: Vec<u8>,
    extension: Extension,
    broken: Option<Malformed>,
    direction: PhantomData<D>,
}

impl<D: Direction> Decoder<D> {
    /// A reader at a frame boundary.
    #[must_use]
    pub const fn new(extension: Extension) -> Self {
        Self { open: Vec::new(), extension, broken: None, direction: PhantomData }
    }

    /// Reads the next piece of the stream and calls `on_frame` for each frame
    /// that it completes. Empty frames are skipped.
    ///
    /// # Errors
    /// [`Malformed`] when the stream cannot be read on; the frames before that
    /// place have been given out. From then on every call says the same.
    pub fn feed(&mut self, input: &[u8], mut on_frame: impl FnMut(D::Frame<'_>)) -> Result<(), Malformed> {
        if let Some(malformed) = self.broken {
            return Err(malformed);
        }
        let outcome = self.read(input, &mut on_frame);
        if let Err(malformed) = outcome {
            self.broken = Some(malformed);
            self.open = Vec::new();
        }
        outcome
    }

    /// Whether the stream stands inside a frame: its first byte has come, its LF has not.
    #[must_use]
    pub const fn is_mid_frame(&self) -> bool {
        !self.open.is_empty()
    }

    fn read(&mut self, mut input: &[u8], on_frame: &mut impl FnMut(D::Frame<'_>)) -> Result<(), Malformed> {
        if !self.open.is_empty() {
            // With one byte more than the longest frame there is always a verdict.
            let had = self.open.len();
            let taken = input.len().min(MAX_FRAME_BYTES + 1 - had);
            self.open.extend_from_slice(&input[..taken]);
            match self.next(&self.open)? {
                Some((frame, used)) => {
                    on_frame(frame);
                    input = &input[used - had..];
                    self.open.clear();
                }
                None => return Ok(()),
            }
        }
        loop {
            while let [b'\n', rest @ ..] = input {
                input = rest;
            }
            match self.next(input)? {
                Some((frame, used)) => {
                    on_frame(frame);
                    input = &input[used..];
                }
                None => break,
            }
        }
        if input.is_empty() {
            // Give back what the last incomplete frame took.
            self.open = Vec::new();
        } else {
            self.open.extend_from_slice(input);
        }
        Ok(())
    }

    /// The frame at the start of `input` and its length with LF; `None`: not complete.
    fn next<'a>(&self, input: &'a [u8]) -> Result<Option<(D::Frame<'a>, usize)>, Malformed> {
        let Some((&op, after_op)) = input.split_first() else {
            return Ok(None);
        };
        let header_bytes = D::header_bytes(op, self.extension).ok_or(Malformed::BadOp(op))?;
        let Some((header, after_header)) = after_op.split_at_checked(header_bytes) else {
            return Ok(None);
        };
        let most_text = MAX_FRAME_BYTES - 1 - header_bytes;
        match after_header.iter().take(most_text + 1).position(|&byte| byte == b'\n') {
            Some(text_bytes) => {
                let frame = D::read(op, header, &after_header[..text_bytes])?;
                Ok(Some((frame, 1 + header_bytes + text_bytes + 1)))
            }
            None if after_header.len() > most_text => Err(Malformed::LineTooLong),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an open frame may occupy: the vector doubles on its way to 193 bytes.
    const MOST_CAPACITY: usize = 2 * MAX_FRAME_BYTES;

    /// Feeds `pieces` and checks after each what is held.
    fn assert_bounded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) {
        let mut decoder = Decoder::<ClientToServer>::new(Extension::On);
        for piece in pieces {
            let outcome = decoder.feed(piece, |_| ());
            assert!(decoder.open.len() <= MAX_FRAME_BYTES);
            assert!(decoder.open.capacity() <= MOST_CAPACITY);
            if outcome.is_err() || !decoder.is_mid_frame() {
                assert_eq!(decoder.open.capacity(), 0);
            }
        }
    }

    proptest! {
        #[test]
        fn no_stream_makes_it_hold_more_than_one_frame(
            // `R` and a line feed often, so that frames open and close.
            stream in prop::collection::vec(prop_oneof![Just(b'R'), Just(b'\n'), any::<u8>()], 0..2_000),
            piece in 1..500_usize,
        ) {
            assert_bounded(stream.chunks(piece));
        }
    }

    #[test]
    fn a_large_read_leaves_nothing_large_behind() {
        let frames = b"R\0\0\0\0\0\0\0\x01key\n".repeat(5_000);
        for cut in 0..30 {
            let (first, rest) = frames.split_at(cut);
            assert_bounded([first, rest]);
            assert_bounded([first, &rest[..rest.len() - 5]]);
            assert_bounded([first, rest, &first[..cut.min(5)]]);
        }
        assert_bounded(frames.chunks(7));
    }

    #[test]
    fn the_longest_open_frame_is_held_and_the_next_byte_ends_it() {
        for piece in [1, 7, 191, 192] {
            let mut decoder = Decoder::<ServerToClient>::new(Extension::Off);
            for bytes in [b'L'; 192].chunks(piece) {
                assert_eq!(decoder.feed(bytes, |_| ()), Ok(()));
            }
            assert_eq!(decoder.open.len(), MAX_FRAME_BYTES);
            assert_eq!(decoder.feed(b"x", |_| ()), Err(Malformed::LineTooLong));
        }
    }

    #[test]
    fn every_op_that_a_direction_lacks_is_refused_at_its_byte() {
        fn taken<D: Direction>(extension: Extension) -> String {
            let taken =
                |op: &u8| Decoder::<D>::new(extension).feed(&[*op], |_| ()) != Err(Malformed::BadOp(*op));
            (0..=u8::MAX).filter(|op| *op != b'\n').filter(taken).map(char::from).collect()
        }
        assert_eq!(taken::<ClientToServer>(Extension::Off), "AR");
        assert_eq!(taken::<ClientToServer>(Extension::On), "ACPRV");
        assert_eq!(taken::<ServerToClient>(Extension::Off), "ABELMNRT");
        assert_eq!(taken::<ServerToClient>(Extension::On), "ABEGLMNPRT");
    }
}
