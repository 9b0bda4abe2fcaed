//! Greeting and challenge, from the server's side.

use ticketing_protocol::Extension;
use ticketing_protocol::handshake::{Domain, Greeting, Response, nonce};
use ticketing_protocol::limits::MAX_RESPONSE_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};
use tracing::error;

use crate::auth::ClientTokens;

/// A client that knows the token.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) extension: Extension,
    /// What came behind its answer.
    pub(crate) pipelined: Vec<u8>,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its answer was wrong, late or too long.
    Wrong,
    /// The connection is gone.
    Gone,
}

/// Greets the client and checks its answer, which must be complete by `deadline`.
pub(crate) async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    domain: Domain,
    own_address: &str,
    tokens: &ClientTokens,
    deadline: Instant,
) -> Result<Admitted, Refused> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        error!(%error, "no random bytes for a challenge: nobody can authenticate");
        Refused::Gone
    })?;
    let nonce = nonce(random);
    let mut greeting = Vec::new();
    Greeting {
        domain: Some(domain),
        node: None,
        own_address: Some(own_address),
        extension: true,
        nonce: &nonce,
    }
    .encode(&mut greeting);

    let mut answer = Line::default();
    let exchange = async {
        stream.write_all(&greeting).await?;
        stream.flush().await?;
        answer.read_from(stream).await
    };
    let end = match timeout_at(deadline, exchange).await {
        Ok(Ok(Some(end))) => end,
        Ok(Ok(None)) | Err(_) => return Err(Refused::Wrong),
        Ok(Err(_)) => return Err(Refused::Gone),
    };
    let (line, pipelined) = answer.split(end);
    let response = Response::parse(line).map_err(|_| Refused::Wrong)?;
    if !tokens.accept(&response, &nonce) {
        return Err(Refused::Wrong);
    }
    let extension = if response.extension { Extension::On } else { Extension::Off };
    Ok(Admitted { extension, pipelined: pipelined.to_vec() })
}

/// A line that is being read, and perhaps something behind it.
struct Line {
    bytes: [u8; MAX_RESPONSE_BYTES + 128],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; MAX_RESPONSE_BYTES + 128], len: 0 }
    }
}

impl Line {
    /// Reads until there is an LF, and returns its place; `None`: the line is too long.
    async fn read_from<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> std::io::Result<Option<usize>> {
        loop {
            let read = stream.read(self.bytes.get_mut(self.len..).unwrap_or_default()).await?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.len += read;
            let line = self.bytes.iter().take(self.len.min(MAX_RESPONSE_BYTES + 1));
            match line.clone().position(|&byte| byte == b'\n') {
                Some(end) => return Ok(Some(end)),
                None if self.len > MAX_RESPONSE_BYTES => return Ok(None),
                None => {}
            }
        }
    }

    fn split(&self, end: usize) -> (&[u8], &[u8]) {
        let (line, rest) = self.bytes.get(..self.len).unwrap_or_default().split_at(end);
        (line, rest.get(1..).unwrap_or_default())
    }
}
