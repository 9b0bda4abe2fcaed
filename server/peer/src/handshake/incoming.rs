//! A message of fixed size that is being read.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::messages::{MAGIC, PREFIX};

/// As many bytes of a message as have come.
#[derive(Debug)]
pub(crate) struct Incoming<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// Why a message does not arrive.
#[derive(Debug)]
pub(super) enum Broken {
    /// What came is not of this protocol.
    Stranger(Stranger),
    /// The connection ended.
    Io(io::Error),
}

impl<const N: usize> Incoming<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Whether not one byte has come.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads magic and version, and returns the version.
    pub(super) async fn version<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<u16, Broken> {
        let mut ended = false;
        while self.len < PREFIX && !ended {
            ended = self.read(stream, PREFIX).await.map_err(Broken::Io)? == 0;
        }
        let come = self.come();
        if !come.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
            return Err(Broken::Stranger(Stranger::of(come)));
        }
        match come.split_last_chunk() {
            Some((_, version)) if !ended => Ok(u16::from_le_bytes(*version)),
            Some(_) | None => Err(Broken::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Reads the whole message.
    pub(super) async fn whole<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> io::Result<&[u8; N]> {
        while self.len < N {
            if self.read(stream, N).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.bytes)
    }

    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, until: usize) -> io::Result<usize> {
        let read = stream.read(self.bytes.get_mut(self.len..until).unwrap_or_default()).await?;
        self.len += read;
        Ok(read)
    }

    fn come(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What speaks another protocol, as far as its first bytes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// The port that serves clients.
    ClientPort,
    /// TLS, where this end has none.
    Tls,
    /// Something else, and its first bytes.
    Unknown(Box<[u8]>),
}

impl Stranger {
    fn of(first: &[u8]) -> Self {
        match first {
            // A handshake or an alert of any version.
            [0x16 | 0x15, 0x03, ..] => Self::Tls,
            _ if first.starts_with(b"TICKETING/") => Self::ClientPort,
            // It says why there is no greeting, as when it has too many connections.
            [b'E', b'a'..=b'z', ..] => Self::ClientPort,
            _ => Self::Unknown(first.into()),
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::ClientPort => "client port",
            Self::Tls => "TLS",
            Self::Unknown(_) => "stranger",
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientPort => f.write_str("this is a port for clients; the peer port is another one"),
            Self::Tls => f.write_str("the other side speaks TLS, and this one has no peer certificate"),
            Self::Unknown(first) => {
                write!(
                    f,
                    "the other side speaks another protocol; it began with \"{}\"",
                    first.escape_ascii()
                )
            }
        }
    }
}
