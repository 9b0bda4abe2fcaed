//! A client that costs next to nothing: one thread, blocking sockets, frames
//! written by the dozen. What it measures is the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ticketing_protocol::handshake::{Greeting, encode_response};
use ticketing_protocol::{ClientFrame, Decoder, Extension, Key, ServerFrame, ServerToClient};

const READ_BYTES: usize = 64 * 1024;

/// A server that says nothing for so long has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// An authenticated connection that speaks extension 1.
pub(crate) struct Connection {
    stream: TcpStream,
    decoder: Decoder<ServerToClient>,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Connection {
    /// Connects and goes through the handshake, first frame included.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("connecting to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        // The server says nothing after its greeting until it is answered: no byte is lost in this buffer.
        let mut reader = BufReader::new(&stream);
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\n").context("the server closed instead of greeting")?;
        let greeting = Greeting::parse(line).context("reading the greeting")?;
        ensure!(greeting.extension, "the server does not speak extension 1");
        let mut output = Vec::new();
        encode_response(b"", greeting.nonce, true, &mut output);
        (&stream).write_all(&output)?;
        let mut leader = Vec::new();
        BufReader::new(&stream).read_until(b'\n', &mut leader)?;
        ensure!(leader.first() == Some(&b'L'), "refused: {}", String::from_utf8_lossy(&leader));
        let decoder = Decoder::new(Extension::On);
        Ok(Self { stream, decoder, output: Vec::new(), input: Vec::new() })
    }

    /// Puts a frame into the next write.
    pub(crate) fn push(&mut self, frame: ClientFrame<'_>) {
        frame.encode(&mut self.output);
    }

    /// Writes what was pushed.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.output).context("writing to the server")?;
        self.output.clear();
        Ok(())
    }

    /// Reads once and gives out the frames that came.
    pub(crate) fn receive(&mut self, mut on_frame: impl FnMut(ServerFrame<'_>)) -> Result<()> {
        self.input.resize(READ_BYTES, 0);
        let bytes = self.stream.read(&mut self.input).context("reading from the server")?;
        ensure!(bytes > 0, "the server closed the connection");
        let mut refusal = None;
        self.decoder.feed(&self.input[..bytes], |frame| match frame {
            ServerFrame::Error { reason } => refusal = Some(reason.to_owned()),
            ServerFrame::Leader { .. } | ServerFrame::Moved { .. } => {}
            frame @ (ServerFrame::Granted { .. }
            | ServerFrame::GrantedUntil { .. }
            | ServerFrame::TimedOut { .. }
            | ServerFrame::Busy { .. }
            | ServerFrame::Released { .. }
            | ServerFrame::NotHeld { .. }
            | ServerFrame::Place { .. }) => on_frame(frame),
        })?;
        refusal.map_or(Ok(()), |reason| bail!("the server refused: {reason}"))
    }

    /// Writes what was pushed and reads `count` answers.
    pub(crate) fn exchange(
        &mut self,
        count: usize,
        mut expected: impl FnMut(ServerFrame<'_>) -> bool,
    ) -> Result<()> {
        self.flush()?;
        self.expect(count, &mut expected)
    }

    /// Reads `count` answers; `expected` says of each whether it is one that was asked for.
    pub(crate) fn expect(
        &mut self,
        count: usize,
        mut expected: impl FnMut(ServerFrame<'_>) -> bool,
    ) -> Result<()> {
        let (mut come, mut wrong) = (0, None);
        while come < count {
            self.receive(|frame| {
                come += 1;
                if !expected(frame) {
                    wrong.get_or_insert_with(|| format!("{frame:?}"));
                }
            })?;
            if let Some(wrong) = &wrong {
                bail!("an answer that was not asked for: {wrong}");
            }
        }
        ensure!(come == count, "{} answers too many", come - count);
        Ok(())
    }

    /// Acquires a key that is free; returns the token.
    pub(crate) fn take(&mut self, key: Key<'_>, owner: u64, lease_secs: u8) -> Result<u64> {
        self.push(ClientFrame::Acquire { wait: 0, lease: lease_secs, owner, key });
        let mut held = 0;
        self.exchange(1, |answer| {
            let ServerFrame::GrantedUntil { token, .. } = answer else { return false };
            held = token;
            true
        })?;
        Ok(held)
    }

    /// Releases a key that is held under this token.
    pub(crate) fn release(&mut self, key: Key<'_>, token: u64) -> Result<()> {
        self.push(ClientFrame::Release { token, key });
        self.exchange(1, |answer| matches!(answer, ServerFrame::Released { .. }))
    }

    /// The bare socket, for bytes that no client would send.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}
