//! What both ends do with a TCP connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ConnectionCommon;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::handshake::Binding;

/// A connection, under TLS or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Frames leave at once, and a machine that vanished is noticed in about 5 seconds.
pub(crate) fn tune(tcp: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    let keep_alive =
        TcpKeepalive::new().with_time(Duration::from_secs(2)).with_interval(Duration::from_secs(1));
    #[cfg(not(target_os = "windows"))]
    let keep_alive = keep_alive.with_retries(3);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(5)))?;
    Ok(())
}

/// Has the end of a connection be a reset: what was not sent by then never is.
///
/// A dialler that gives a connection up has given up what it said there. Were it to
/// arrive nevertheless, when a cable is mended or a process wakes, it would be older
/// than it seems.
pub(crate) fn end_at_once(tcp: &TcpStream) -> io::Result<()> {
    SockRef::from(tcp).set_linger(Some(Duration::ZERO))
}

/// The listener's end: of what has come, nothing is taken once the dialler has given
/// the connection up.
#[derive(Debug)]
pub(crate) struct Accepted(pub(crate) TcpStream);

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        // The system hands out what came before a reset, and tells of the reset afterwards.
        Poll::Ready(self.0.take_error()?.map_or(Ok(()), Err))
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// What only the two ends of this TLS connection know: RFC 9266, `tls-exporter`.
pub(crate) fn binding<Side>(tls: &ConnectionCommon<Side>) -> io::Result<Binding> {
    tls.export_keying_material(Binding::default(), b"EXPORTER-Channel-Binding", Some(b""))
        .map_err(io::Error::other)
}
