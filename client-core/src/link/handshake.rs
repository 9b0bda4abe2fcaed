//! Greeting, response, and the wait for the server's first frame.

use std::io::ErrorKind;
use std::time::Duration;

use ticketing_protocol::handshake::{Greeting, encode_response};
use ticketing_protocol::limits::{FIRST_FRAME_PATIENCE, MAX_FRAME_BYTES, MAX_GREETING_BYTES, REFUSAL_DELAY};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Greeted;
use crate::trouble::{Stage, Trouble};
use crate::{Domain, Token};

/// Proves the token to the server. Gives back what the server said of itself,
/// and the bytes that it sent behind the handshake.
///
/// # Errors
/// Why no session is open. Deadlines are the caller's, but for the patience
/// with a server that sends no first frame.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    token: &Token,
    expected: Option<Domain>,
    stage: &watch::Sender<Stage>,
) -> Result<(Greeted, Vec<u8>), Trouble> {
    let mut bytes = Vec::new();
    stage.send_replace(Stage::Greeting);
    let end = read_line(socket, &mut bytes, MAX_GREETING_BYTES, Stage::Greeting).await?;
    let line = bytes.get(..end).unwrap_or_default();
    if let Some(reason) = refusal(line) {
        return Err(reason);
    }
    let greeting = Greeting::parse(line).map_err(Trouble::Handshake)?;
    let greeted = Greeted {
        domain: greeting.domain,
        node: greeting.node,
        own_address: greeting.own_address.map(Into::into),
        extension: greeting.extension,
    };
    if let Some(expected) = expected
        && greeted.domain != Some(expected)
    {
        return Err(Trouble::WrongDomain { expected, found: greeted.domain.into() });
    }
    let mut response = Vec::new();
    encode_response(token.as_bytes(), greeting.nonce, greeted.extension, &mut response);
    socket.write_all(&response).await.map_err(Trouble::Io)?;
    socket.flush().await.map_err(Trouble::Io)?;
    bytes.drain(..=end);

    stage.send_replace(Stage::FirstFrame);
    // Silence says that there will be no first frame. But a server that
    // announces itself sends one, or after its pause for refusals an error;
    // to go on before that would hand requests to a server about to refuse us.
    let patience = if greeted == Greeted::default() { Duration::ZERO } else { REFUSAL_DELAY };
    match timeout(FIRST_FRAME_PATIENCE + patience, first_frame(socket, &mut bytes)).await {
        Ok(outcome) => outcome?,
        Err(_silence) => {}
    }
    Ok((greeted, bytes))
}

/// Waits until a frame has begun. An error frame is read whole and told as such.
async fn first_frame<S: AsyncRead + Unpin>(socket: &mut S, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
    loop {
        let keep_alives = bytes.iter().take_while(|&&byte| byte == b'\n').count();
        bytes.drain(..keep_alives);
        match bytes.first() {
            None => read_more(socket, bytes, Stage::FirstFrame).await?,
            Some(b'E') => {
                let end = read_line(socket, bytes, MAX_FRAME_BYTES, Stage::FirstFrame).await?;
                // One that is malformed is the session's to judge, as everything else.
                return bytes.get(..end).and_then(refusal).map_or(Ok(()), Err);
            }
            Some(_) => return Ok(()),
        }
    }
}

/// Reads until there is a line of at most `max` bytes; returns where its LF is.
async fn read_line<S: AsyncRead + Unpin>(
    socket: &mut S,
    bytes: &mut Vec<u8>,
    max: usize,
    stage: Stage,
) -> Result<usize, Trouble> {
    loop {
        match bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) if end <= max => return Ok(end),
            None if bytes.len() <= max => read_more(socket, bytes, stage).await?,
            Some(_) | None => {
                let too_long = ticketing_protocol::handshake::BadHandshake::TooLong { max };
                return Err(Trouble::Handshake(too_long));
            }
        }
    }
}

async fn read_more<S: AsyncRead + Unpin>(
    socket: &mut S,
    bytes: &mut Vec<u8>,
    stage: Stage,
) -> Result<(), Trouble> {
    match socket.read_buf(bytes).await {
        Ok(0) => Err(Trouble::ClosedBefore(stage)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Trouble::ClosedBefore(stage)),
        Err(error) => Err(Trouble::Io(error)),
    }
}

/// What an `E` frame says, if the line is one. No greeting is: it has a space.
fn refusal(line: &[u8]) -> Option<Trouble> {
    let reason = line.strip_prefix(b"E")?;
    let legal = !reason.is_empty() && reason.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
    std::str::from_utf8(reason).ok().filter(|_| legal).map(Trouble::refused)
}
