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
    /// Its answer was wrong or too long.
    Wrong,
    /// It did not answer in time.
    Late,
    /// The connection is gone.
    Gone,
}

/// Greets the client and checks its answer, which must be complete by `deadline`.
pub(crate) async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    domain: Option<Domain>,
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
    Greeting { domain, node: None, own_address: Some(own_address), extension: true, nonce: &nonce }
        .encode(&mut greeting);

    let mut answer = Line::default();
    let exchange = async {
        stream.write_all(&greeting).await?;
        stream.flush().await?;
        answer.read_from(stream).await
    };
    let end = match timeout_at(deadline, exchange).await {
        Ok(Ok(Some(end))) => end,
        Ok(Ok(None)) => return Err(Refused::Wrong),
        Ok(Err(_)) => return Err(Refused::Gone),
        Err(_) => return Err(Refused::Late),
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
            match self.bytes.iter().take(self.len).position(|&byte| byte == b'\n') {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ticketing_protocol::handshake::encode_response;
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::advance;

    use super::*;

    const TOKEN: &[u8] = b"sixteen bytes or more";

    /// A client whose greeting has been read, and its nonce.
    async fn greeted() -> (DuplexStream, String, JoinHandle<Result<Admitted, Refused>>) {
        let (mut client, mut server) = duplex(1024);
        let admission = tokio::spawn(async move {
            let tokens = ClientTokens::single(TOKEN.to_vec()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            admit(&mut server, Some(Domain([7; 16])), "me:1", &tokens, deadline).await
        });
        let mut line = Vec::new();
        loop {
            match client.read_u8().await.unwrap() {
                b'\n' => break,
                byte => line.push(byte),
            }
        }
        let greeting = Greeting::parse(&line).unwrap();
        assert_eq!((greeting.domain, greeting.node), (Some(Domain([7; 16])), None));
        assert_eq!((greeting.own_address, greeting.extension), (Some("me:1"), true));
        assert_eq!(greeting.nonce.len(), 22);
        (client, greeting.nonce.to_owned(), admission)
    }

    fn response(token: &[u8], nonce: &str, extension: bool) -> Vec<u8> {
        let mut line = Vec::new();
        encode_response(token, nonce, extension, &mut line);
        line
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_answer_opens_however_it_is_cut_and_keeps_what_follows() {
        for extension in [false, true] {
            let (mut client, nonce, admission) = greeted().await;
            for byte in response(TOKEN, &nonce, extension) {
                client.write_all(&[byte]).await.unwrap();
                advance(Duration::from_millis(50)).await;
            }
            let admitted = admission.await.unwrap().unwrap();
            assert_eq!(admitted.extension == Extension::On, extension);
            assert!(admitted.pipelined.is_empty());
        }
        let (mut client, nonce, admission) = greeted().await;
        client.write_all(&[&response(TOKEN, &nonce, false)[..], b"A\n\x0a"].concat()).await.unwrap();
        assert_eq!(admission.await.unwrap().unwrap().pipelined, b"A\n\x0a");
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_answers_are_refused() {
        let answers: [fn(&str) -> Vec<u8>; 6] = [
            |nonce| response(b"another token of many bytes", nonce, true),
            |nonce| response(b"", nonce, true),
            |_| response(TOKEN, "another nonce", true),
            |_| b"\n".to_vec(),
            // As long as an answer may be, and one byte longer.
            |_| [vec![b'x'; 128], b"\n".to_vec()].concat(),
            |_| vec![b'x'; 129],
        ];
        for answer in answers {
            let (mut client, nonce, admission) = greeted().await;
            client.write_all(&answer(&nonce)).await.unwrap();
            assert_eq!(admission.await.unwrap().unwrap_err(), Refused::Wrong);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_refused_and_a_closed_connection_is_gone() {
        let (mut client, _, admission) = greeted().await;
        let start = Instant::now();
        client.write_all(b"half of an answer").await.unwrap();
        assert_eq!(admission.await.unwrap().unwrap_err(), Refused::Late);
        assert_eq!(start.elapsed(), Duration::from_secs(5));

        let (client, _, admission) = greeted().await;
        drop(client);
        assert_eq!(admission.await.unwrap().unwrap_err(), Refused::Gone);
    }

    #[tokio::test]
    async fn every_connection_has_a_nonce_of_its_own() {
        let mut nonces = std::collections::HashSet::new();
        for _ in 0..200 {
            assert!(nonces.insert(greeted().await.1));
        }
    }
}
