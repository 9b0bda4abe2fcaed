//! How a connection is closed so that the last word arrives.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use ticketing_protocol::{Reason, ServerFrame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;

use crate::session::SCRATCH;

/// How long a connection that ends may take.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// The most bytes that are read and thrown away at the end of a connection.
const DRAIN_BYTES: usize = 16 * 1024 * 1024;

/// Tells why and closes.
pub(crate) async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, reason: Reason) {
    let mut frame = Vec::new();
    ServerFrame::Error { reason: reason.as_str() }.encode(&mut frame);
    let last_words = async {
        stream.write_all(&frame).await?;
        half_close(&mut stream).await
    };
    // Whoever does not listen goes without.
    let _ = timeout(LINGER, last_words).await;
}

/// Ends our direction, and reads on until the client ends its own: to close over
/// bytes that were not read would reset the connection, and the reset would
/// overtake what was written last.
pub(crate) async fn half_close<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut drained = 0;
    while drained < DRAIN_BYTES {
        match read_and_forget(stream).await? {
            0 => break,
            bytes => drained += bytes,
        }
    }
    Ok(())
}

async fn read_and_forget<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<usize> {
    poll_fn(|cx| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        })
    })
    .await
}
