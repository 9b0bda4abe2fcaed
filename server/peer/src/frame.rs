//! Frames, once the handshake is done.
//!
//! ```text
//! u32 LE  bytes of the body
//! u8      kind: of a call, what is asked for; of an answer, whether it is one
//! u64 LE  number of the call on this connection
//! body
//! ```

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes before the body.
pub(crate) const HEADER: usize = 4 + 1 + 8;

/// Bytes that are read at a time at most, so that a buffer holds no more than
/// one large body and these.
const READ: usize = 64 * 1024;

/// A body below this many bytes is copied out: whoever keeps it would otherwise
/// keep all of the bytes that it was read with.
const COPIED: usize = READ / 2;

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) body: Bytes,
}

/// A length that cannot be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame announces a body of {bytes} bytes; the most is {max}")]
pub(crate) struct TooLong {
    pub(crate) bytes: u32,
    pub(crate) max: u32,
}

/// Appends what stands before a body.
pub(crate) fn put_header(kind: u8, id: u64, body_bytes: u32, out: &mut BytesMut) {
    out.put_u32_le(body_bytes);
    out.put_u8(kind);
    out.put_u64_le(id);
}

/// Takes frames from a stream. What it holds grows with what has come, not with
/// what is announced.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    read: BytesMut,
    max_body: u32,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R, max_body: u32) -> Self {
        Self { stream, read: BytesMut::new(), max_body }
    }

    /// Reads once; `false`: the stream has ended. Nothing is lost if the future
    /// is dropped.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        self.read.reserve(READ);
        Ok(self.stream.read_buf(&mut (&mut self.read).limit(READ)).await? > 0)
    }

    /// The next frame that is here as a whole.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, TooLong> {
        let mut header = &*self.read;
        let (Ok(bytes), Ok(kind), Ok(id)) =
            (header.try_get_u32_le(), header.try_get_u8(), header.try_get_u64_le())
        else {
            // The length alone is enough to refuse.
            return self.announced().map_or(Ok(None), |bytes| self.bounded(bytes).map(|_| None));
        };
        let len = self.bounded(bytes)?;
        if header.len() < len {
            return Ok(None);
        }
        self.read.advance(HEADER);
        let body = if len < COPIED {
            let body = self.read.get(..len).map(Bytes::copy_from_slice).unwrap_or_default();
            self.read.advance(len);
            body
        } else {
            // The body takes the buffer with it, which has grown to its size.
            let rest = self.read.get(len..).map(BytesMut::from).unwrap_or_default();
            let mut body = std::mem::replace(&mut self.read, rest);
            body.truncate(len);
            body.freeze()
        };
        Ok(Some(Frame { kind, id, body }))
    }

    /// Whether the stream is in the middle of a frame.
    pub(crate) fn inside(&self) -> bool {
        !self.read.is_empty()
    }

    fn announced(&self) -> Option<u32> {
        (&*self.read).try_get_u32_le().ok()
    }

    fn bounded(&self, bytes: u32) -> Result<usize, TooLong> {
        let max = self.max_body;
        match usize::try_from(bytes) {
            Ok(len) if bytes <= max => Ok(len),
            Ok(_) | Err(_) => Err(TooLong { bytes, max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    fn bytes(kind: u8, id: u64, body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_header(kind, id, u32::try_from(body.len()).unwrap(), &mut out);
        out.extend_from_slice(body);
        out.to_vec()
    }

    async fn read_all(mut reader: FrameReader<impl AsyncRead + Unpin>) -> Result<Vec<Frame>, TooLong> {
        let mut frames = Vec::new();
        loop {
            while let Some(frame) = reader.frame()? {
                frames.push(frame);
            }
            if !reader.fill().await.unwrap() {
                assert!(!reader.inside());
                return Ok(frames);
            }
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let expected = b"\x03\x00\x00\x00\x09\x08\x07\x06\x05\x04\x03\x02\x01abc";
        assert_eq!(bytes(9, 0x0102_0304_0506_0708, b"abc"), expected);
        assert_eq!(HEADER, expected.len() - 3);
    }

    #[tokio::test]
    async fn frames_are_read_however_they_are_cut() {
        let large = vec![7; COPIED + 1];
        let bodies: [&[u8]; 4] = [b"", b"x", &large, b"last"];
        let sent = bodies.iter().enumerate().flat_map(|(id, body)| bytes(3, id as u64, body));
        let sent = sent.collect::<Vec<_>>();
        for cut in [1, 2, 3, 13, 14, 1000, sent.len()] {
            let (mut write, read) = duplex(cut);
            let reading = tokio::spawn(read_all(FrameReader::new(read, 1 << 20)));
            for piece in sent.chunks(cut) {
                write.write_all(piece).await.unwrap();
            }
            drop(write);
            let frames = reading.await.unwrap().unwrap();
            assert_eq!(frames.len(), bodies.len(), "cut into pieces of {cut}");
            for (id, (frame, body)) in frames.iter().zip(bodies).enumerate() {
                assert_eq!((frame.kind, frame.id, &*frame.body), (3, id as u64, body));
            }
        }
    }

    /// A length alone is refused, before anything else has come.
    #[tokio::test]
    async fn a_length_beyond_the_bound_is_refused_at_once() {
        for (announced, refused) in [(1024, false), (1025, true), (u32::MAX, true)] {
            let length = u32::to_le_bytes(announced);
            let mut reader = FrameReader::new(&length[..], 1024);
            assert!(reader.fill().await.unwrap());
            let expected = if refused { Err(TooLong { bytes: announced, max: 1024 }) } else { Ok(None) };
            assert_eq!(reader.frame(), expected);
        }
    }

    #[tokio::test]
    async fn a_length_that_is_announced_takes_no_memory() {
        let announced = bytes(0, 0, &[0; 100]);
        let announced = [&0x0100_0000_u32.to_le_bytes()[..], announced.get(4..).unwrap()].concat();
        let mut reader = FrameReader::new(&announced[..], 16 << 20);
        while reader.fill().await.unwrap() {
            assert_eq!(reader.frame(), Ok(None));
        }
        assert!(reader.inside());
        assert!(reader.read.capacity() < 3 * READ, "{}", reader.read.capacity());
    }

    #[tokio::test]
    async fn a_large_body_leaves_no_large_buffer() {
        let sent = [bytes(0, 1, &vec![1; 8 << 20]), bytes(0, 2, b"small")].concat();
        let mut reader = FrameReader::new(&sent[..], 8 << 20);
        while reader.fill().await.unwrap() {
            let Some(large) = reader.frame().unwrap() else { continue };
            assert!(large.body == vec![1; 8 << 20]);
            assert!(reader.read.capacity() <= READ, "{}", reader.read.capacity());
            // What was read with it is not lost.
            while reader.fill().await.unwrap() {}
            assert_eq!(reader.frame().unwrap().unwrap().body, "small");
            return;
        }
        panic!("no frame");
    }

    /// Whoever keeps a small body does not keep what was read with it.
    #[tokio::test]
    async fn a_small_body_is_its_own() {
        let sent = [bytes(0, 1, b"kept"), bytes(0, 2, &[0; 1000])].concat();
        let mut reader = FrameReader::new(&sent[..], 1 << 20);
        reader.fill().await.unwrap();
        let kept = reader.frame().unwrap().unwrap();
        let before = reader.read.as_ptr_range();
        assert!(!before.contains(&kept.body.as_ptr()));
        assert!(kept.body.is_unique());
    }
}
