//! Frames that wait to be written: all of them at once, as soon as the last
//! ones are gone.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::frame::put_header;

/// A body below this many bytes is copied behind its header; a larger one is
/// written from where it is.
const COPIED: usize = 4 * 1024;

/// Bytes of buffer that are kept for the next frames.
const KEPT: usize = 256 * 1024;

/// The frames in their order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Whole pieces, before the tail.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
    /// Something was written and may still be in the stream's own buffer.
    unflushed: bool,
}

impl Outbox {
    /// Appends a frame. Whoever made the body has bounded it.
    pub(crate) fn push(&mut self, kind: u8, id: u64, body: Bytes) {
        let before = self.tail.len();
        put_header(kind, id, u32::try_from(body.len()).unwrap_or(u32::MAX), &mut self.tail);
        if body.len() < COPIED {
            self.tail.extend_from_slice(&body);
            self.bytes += self.tail.len() - before;
        } else {
            self.bytes += self.tail.len() - before + body.len();
            self.pieces.push_back(self.tail.split().freeze());
            self.pieces.push_back(body);
        }
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is anything to do for [`Outbox::write_to`].
    pub(crate) const fn pending(&self) -> bool {
        self.bytes > 0 || self.unflushed
    }

    /// Writes once what waits, or as much of it as the stream takes. Nothing is
    /// lost or written twice if the future is dropped.
    pub(crate) async fn write_to<W: AsyncWrite + Unpin>(&mut self, stream: &mut W) -> io::Result<()> {
        if self.bytes > 0 {
            if stream.write_buf(self).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unflushed = true;
        }
        if self.bytes == 0 {
            stream.flush().await?;
            self.unflushed = false;
            if self.tail.capacity() > KEPT {
                self.tail = BytesMut::new();
            }
        }
        Ok(())
    }
}

impl Buf for Outbox {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail, |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail: &'a [u8] = &self.tail;
        let pieces = self.pieces.iter().map(|piece| &**piece).chain((!tail.is_empty()).then_some(tail));
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        let mut left = count;
        self.bytes -= count;
        while let Some(piece) = self.pieces.front_mut() {
            if left < piece.len() {
                return piece.advance(left);
            }
            left -= piece.len();
            self.pieces.pop_front();
        }
        self.tail.advance(left);
    }
}
