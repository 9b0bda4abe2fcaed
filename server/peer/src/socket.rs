//! What both ends do with a TCP connection.

use std::io;
use std::time::Duration;

use rustls::ConnectionCommon;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
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

/// What only the two ends of this TLS connection know: RFC 9266, `tls-exporter`.
pub(crate) fn binding<Side>(tls: &ConnectionCommon<Side>) -> io::Result<Binding> {
    tls.export_keying_material(Binding::default(), b"EXPORTER-Channel-Binding", Some(b""))
        .map_err(io::Error::other)
}
