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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::HEADER;

    fn plain(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut out = BytesMut::new();
        for (id, (kind, body)) in frames.iter().enumerate() {
            put_header(*kind, id as u64, u32::try_from(body.len()).unwrap(), &mut out);
            out.extend_from_slice(body);
        }
        out.to_vec()
    }

    fn frames() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let body = prop_oneof![0..20_usize, COPIED - 2..COPIED + 2].prop_map(|len| vec![b'x'; len]);
        prop::collection::vec((any::<u8>(), body), 0..12)
    }

    proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is written at a time, and whenever frames come in between.
        #[test]
        fn the_bytes_are_those_of_the_frames(frames in frames(), steps in prop::collection::vec(1..9000_usize, 1..20)) {
            let mut outbox = Outbox::default();
            let mut written = Vec::new();
            let mut steps = steps.into_iter().cycle();
            let mut write = |outbox: &mut Outbox| {
                let mut slices = [IoSlice::new(&[]); 8];
                let used = outbox.chunks_vectored(&mut slices);
                let ahead = slices.iter().take(used).flat_map(|slice| slice.to_vec()).collect::<Vec<_>>();
                prop_assert!(ahead.starts_with(outbox.chunk()));
                prop_assert_eq!(ahead.is_empty(), !outbox.pending());
                let step = steps.next().unwrap().min(ahead.len());
                written.extend_from_slice(&ahead[..step]);
                outbox.advance(step);
                Ok(())
            };
            for (id, (kind, body)) in frames.iter().enumerate() {
                outbox.push(*kind, id as u64, body.clone().into());
                write(&mut outbox)?;
            }
            while outbox.pending() {
                write(&mut outbox)?;
            }
            prop_assert_eq!(written, plain(&frames));
        }
    }

    #[tokio::test]
    async fn everything_that_waits_goes_in_one_write() {
        let mut outbox = Outbox::default();
        for id in 0..100 {
            outbox.push(0, id, Bytes::from_static(b"small"));
        }
        outbox.push(0, 100, vec![1; COPIED].into());
        outbox.push(0, 101, Bytes::from_static(b"behind"));
        assert_eq!(outbox.bytes(), 102 * HEADER + 100 * 5 + COPIED + 6);
        let mut stream = counting::Counting::default();
        outbox.write_to(&mut stream).await.unwrap();
        assert_eq!((outbox.pending(), stream.writes), (false, 1));
        assert_eq!(stream.bytes, 102 * HEADER + 100 * 5 + COPIED + 6);
    }

    #[tokio::test]
    async fn a_burst_gives_its_memory_back() {
        let mut outbox = Outbox::default();
        for id in 0..1000 {
            outbox.push(0, id, vec![0; 1000].into());
        }
        outbox.write_to(&mut tokio::io::sink()).await.unwrap();
        assert!(!outbox.pending() && outbox.tail.capacity() <= KEPT);
    }

    /// A stream that counts how often it is written to.
    mod counting {
        use std::pin::Pin;
        use std::task::{Context, Poll};

        use super::*;

        #[derive(Default)]
        pub(super) struct Counting {
            pub(super) writes: usize,
            pub(super) bytes: usize,
        }

        impl AsyncWrite for Counting {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.poll_write_vectored(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let bytes = slices.iter().map(|slice| slice.len()).sum();
                self.writes += 1;
                self.bytes += bytes;
                Poll::Ready(Ok(bytes))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
    }
}
