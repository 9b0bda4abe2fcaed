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

/// Bytes that are read at a time, as a rule.
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
        Ok(self.stream.read_buf(&mut self.read).await? > 0)
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
            self.read.split_to(len).freeze()
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
