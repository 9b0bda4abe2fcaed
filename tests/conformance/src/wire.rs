//! One accepted connection, with TLS or without, and every way to end it.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

#[derive(Debug)]
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// Every write leaves at once, as a segment of its own.
    pub(crate) async fn accept(stream: TcpStream, tls: Option<&TlsAcceptor>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        match tls {
            None => Ok(Self::Plain(stream)),
            Some(acceptor) => Ok(Self::Tls(Box::new(acceptor.accept(stream).await?))),
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Appends what came to `buffer`; 0 is the end. A reset and a TLS stream
    /// that was cut short are ends like any other.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>) -> usize {
        let read = match self {
            Self::Plain(stream) => stream.read_buf(buffer).await,
            Self::Tls(stream) => stream.read_buf(buffer).await,
        };
        read.unwrap_or(0)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Ends the stream of this side; with TLS without `close_notify`.
    pub(crate) fn end(&self) -> io::Result<()> {
        SockRef::from(self.socket()).shutdown(Shutdown::Write)
    }

    /// `close_notify` where there is TLS, then the end.
    pub(crate) async fn end_politely(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }

    /// Resets the connection.
    pub(crate) fn reset(self) -> io::Result<()> {
        reset(self.socket())
    }
}

/// Makes the close that follows a reset.
pub(crate) fn reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}
