//! A blocking client that sends exactly the bytes it is told to.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ticketing_protocol::handshake::{Greeting, digest};

use crate::stream::Stream;
use crate::{PATIENCE, Reply, wire};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// In order: everything that the server sent was read.
    Eof,
    /// Torn down by a reset, or under TLS without a goodbye: bytes may have been lost on the way.
    Cut,
}

/// One connection to a server. It does nothing by itself: no keep-alive, no retry.
///
/// Empty frames of the server are skipped, and counted in [`Raw::keep_alives`].
/// A call that waits does so for [`PATIENCE`] unless it takes a time; a call that
/// is told of something unexpected panics.
#[derive(Debug)]
pub struct Raw {
    stream: Stream,
    /// Received, from `used` on not yet looked at.
    received: Vec<u8>,
    used: usize,
    greeting: String,
    keep_alives: u64,
    closed: Option<Closed>,
}

impl Raw {
    /// A TCP connection on which nothing has been said yet.
    ///
    /// # Panics
    /// If there is no connection to be had.
    #[must_use]
    #[track_caller]
    pub fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr).unwrap_or_else(|error| panic!("no connection to {addr}: {error}"))
    }

    /// A TCP connection on which nothing has been said yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn try_connect(addr: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&addr, PATIENCE)?;
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(Stream::Plain(tcp)))
    }

    /// A TLS connection; the TLS handshake happens with the first byte.
    ///
    /// # Panics
    /// If there is no connection to be had.
    #[must_use]
    #[track_caller]
    pub fn connect_tls(addr: SocketAddr, host: &str, config: Arc<ClientConfig>) -> Self {
        let plain = Self::connect(addr);
        let host = ServerName::try_from(host.to_owned()).expect("a host name or an address");
        let conn = ClientConnection::new(config, host).expect("a TLS configuration");
        let Stream::Plain(tcp) = plain.stream else { unreachable!("just connected") };
        Self::over(Stream::Tls(Box::new(StreamOwned::new(conn, tcp))))
    }

    const fn over(stream: Stream) -> Self {
        Self { stream, received: Vec::new(), used: 0, greeting: String::new(), keep_alives: 0, closed: None }
    }

    /// An open session of base version 1, with the empty token.
    ///
    /// # Panics
    /// If the server does not let us in.
    #[must_use]
    #[track_caller]
    pub fn open(addr: SocketAddr) -> Self {
        Self::open_with(addr, b"", false)
    }

    /// An open session with extension 1, with the empty token.
    ///
    /// # Panics
    /// If the server does not let us in.
    #[must_use]
    #[track_caller]
    pub fn open_extended(addr: SocketAddr) -> Self {
        Self::open_with(addr, b"", true)
    }

    /// An open session.
    ///
    /// # Panics
    /// If the server does not let us in.
    #[must_use]
    #[track_caller]
    pub fn open_with(addr: SocketAddr, token: &[u8], extension: bool) -> Self {
        let mut raw = Self::connect(addr);
        raw.handshake(token, extension);
        raw
    }

    /// An open session of base version 1, with the empty token, or `None`: the server did
    /// not let us in, for whatever reason.
    #[must_use]
    pub fn try_open(addr: SocketAddr) -> Option<Self> {
        let mut raw = Self::try_connect(addr).ok()?;
        let line = raw.try_read_line()?;
        let answer = digest(b"", Greeting::parse(line.as_bytes()).ok()?.nonce);
        raw.try_send(format!("{answer}\n")).ok()?;
        raw.greeting = line;
        matches!(raw.read_within(PATIENCE)?, Reply::Leader(_)).then_some(raw)
    }

    /// The whole handshake; returns the leader's address of the first frame.
    ///
    /// # Panics
    /// If the server does not let us in.
    #[track_caller]
    pub fn handshake(&mut self, token: &[u8], extension: bool) -> String {
        self.greet(token, extension).unwrap_or_else(|said| panic!("{said:?} instead of a session"))
    }

    /// The whole handshake; returns the leader's address of the first frame.
    ///
    /// # Errors
    /// What the server says instead of its greeting or of that frame.
    ///
    /// # Panics
    /// If it says nothing.
    #[track_caller]
    pub fn greet(&mut self, token: &[u8], extension: bool) -> Result<String, String> {
        let line = self.read_line();
        let Ok(greeting) = Greeting::parse(line.as_bytes()) else { return Err(line) };
        let nonce = greeting.nonce.to_owned();
        self.greeting = line;
        let fields = if extension { ";ext=1" } else { "" };
        self.send(format!("{}{fields}\n", digest(token, &nonce)));
        match self.read() {
            Reply::Leader(address) => Ok(address),
            other => Err(format!("{other:?}")),
        }
    }

    /// Reads the greeting line; returns its nonce.
    ///
    /// # Panics
    /// If something else comes.
    #[track_caller]
    pub fn read_greeting(&mut self) -> String {
        let line = self.read_line();
        let greeting = Greeting::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let nonce = greeting.nonce.to_owned();
        self.greeting = line;
        nonce
    }

    /// The greeting line, without its LF; empty before it was read.
    #[must_use]
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// How many empty frames of the server were skipped.
    #[must_use]
    pub const fn keep_alives(&self) -> u64 {
        self.keep_alives
    }

    /// The socket below, to set its options or to write from another thread.
    #[must_use]
    pub const fn tcp(&self) -> &TcpStream {
        self.stream.tcp()
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the connection does not take them.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the connection does not take them.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends bytes in pieces of `size`, with a pause between them so that each
    /// is likely to be read on its own.
    ///
    /// # Panics
    /// If the connection does not take them.
    #[track_caller]
    pub fn send_in_pieces(&mut self, bytes: impl AsRef<[u8]>, size: usize, pause: Duration) {
        for (index, piece) in bytes.as_ref().chunks(size).enumerate() {
            if index > 0 {
                std::thread::sleep(pause);
            }
            self.send(piece);
        }
    }

    /// Sends an acquire.
    ///
    /// # Panics
    /// If the connection does not take it.
    #[track_caller]
    pub fn acquire(&mut self, key: impl AsRef<[u8]>, owner: u64, wait_secs: u8, lease_secs: u8) {
        self.send(wire::acquire(key, owner, wait_secs, lease_secs));
    }

    /// Sends a release.
    ///
    /// # Panics
    /// If the connection does not take it.
    #[track_caller]
    pub fn release(&mut self, key: impl AsRef<[u8]>, token: u64) {
        self.send(wire::release(key, token));
    }

    /// Acquires a key that is free; returns its token.
    ///
    /// # Panics
    /// If it is not free.
    #[track_caller]
    pub fn take(&mut self, key: impl AsRef<[u8]>, owner: u64, lease_secs: u8) -> u64 {
        self.acquire(key.as_ref(), owner, 0, lease_secs);
        self.expect_granted(key, owner)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Panics
    /// If the connection is gone.
    #[track_caller]
    pub fn half_close(&mut self) {
        self.stream.half_close().unwrap_or_else(|error| panic!("cannot half-close: {error}"));
    }

    /// Ends the connection with a reset.
    ///
    /// # Panics
    /// If the system refuses.
    #[track_caller]
    pub fn reset(self) {
        rustix::net::sockopt::set_socket_linger(self.tcp(), Some(Duration::ZERO)).expect("a socket option");
    }

    /// The next frame.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        match self.read_within(PATIENCE) {
            Some(reply) => reply,
            None => panic!("no frame within {PATIENCE:?}; closed: {:?}", self.closed),
        }
    }

    /// The next frame, or `None`: none came in that time, or the connection
    /// ended ([`Raw::closed`] says which).
    ///
    /// # Panics
    /// If the server broke the contract.
    #[track_caller]
    pub fn read_within(&mut self, patience: Duration) -> Option<Reply> {
        let deadline = Instant::now() + patience;
        loop {
            while self.received.get(self.used) == Some(&b'\n') {
                self.used += 1;
                self.keep_alives += 1;
            }
            if let Some((reply, used)) = Reply::parse(&self.received[self.used..]) {
                self.used += used;
                return Some(reply);
            }
            if !self.receive(deadline) {
                return None;
            }
        }
    }

    /// How the connection ended, if it has.
    #[must_use]
    pub const fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// The next frame must be this one.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn expect(&mut self, expected: &Reply) {
        let reply = self.read();
        assert_eq!(&reply, expected);
    }

    /// The next frame must be a grant of base version 1; returns its token.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn expect_granted(&mut self, key: impl AsRef<[u8]>, owner: u64) -> u64 {
        match self.read() {
            Reply::Granted { token, owner: told, key: of } if told == owner && of == key.as_ref() => token,
            other => {
                panic!("{other:?} instead of a grant of {} to owner {owner}", key.as_ref().escape_ascii())
            }
        }
    }

    /// The next frame must be a grant of extension 1; returns its token and its end in milliseconds.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn expect_granted_until(&mut self, key: impl AsRef<[u8]>, owner: u64) -> (u64, u32) {
        match self.read() {
            Reply::GrantedUntil { token, owner: told, ends_ms, key: of }
                if told == owner && of == key.as_ref() =>
            {
                (token, ends_ms)
            }
            other => {
                panic!("{other:?} instead of a grant of {} to owner {owner}", key.as_ref().escape_ascii())
            }
        }
    }

    /// The next thing must be `E` with this reason, and then an end in order.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn expect_error(&mut self, reason: &str) {
        self.expect(&Reply::error(reason));
        assert_eq!(self.expect_closed(), Closed::Eof, "after E {reason}");
    }

    /// The connection must end now, without another frame.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn expect_closed(&mut self) -> Closed {
        if let Some(reply) = self.read_within(PATIENCE) {
            panic!("{reply:?} instead of the end of the connection");
        }
        let rest = self.received[self.used..].escape_ascii().to_string();
        assert_eq!(rest, "", "a frame was cut off");
        self.closed.unwrap_or_else(|| panic!("still open after {PATIENCE:?}"))
    }

    /// For that long nothing but keep-alives may come, and the connection must stay open.
    ///
    /// # Panics
    /// If something comes.
    #[track_caller]
    pub fn expect_silence(&mut self, time: Duration) {
        if let Some(reply) = self.read_within(time) {
            panic!("{reply:?} instead of silence");
        }
        assert_eq!(self.closed, None, "the connection ended");
    }

    /// Everything that comes before the connection ends.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(reply) = self.read_within(PATIENCE) {
            replies.push(reply);
        }
        self.expect_closed();
        replies
    }

    /// Reads a line of the handshake, without its LF.
    ///
    /// # Panics
    /// If none comes.
    #[track_caller]
    pub fn read_line(&mut self) -> String {
        self.try_read_line().unwrap_or_else(|| {
            let rest = self.received[self.used..].escape_ascii();
            panic!("no line; closed: {:?}, came: {rest}", self.closed)
        })
    }

    fn try_read_line(&mut self) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rest = &self.received[self.used..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line = String::from_utf8(rest[..end].to_vec()).expect("a line of text");
                self.used += end + 1;
                return Some(line);
            }
            if !self.receive(deadline) {
                return None;
            }
        }
    }

    /// Waits for more bytes; `false`: none will come before the deadline.
    #[track_caller]
    fn receive(&mut self, deadline: Instant) -> bool {
        if self.closed.is_some() {
            return false;
        }
        self.received.drain(..self.used);
        self.used = 0;
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.tcp().set_read_timeout(Some(left)).expect("a socket option");
        let mut buffer = [0; 16 * 1024];
        let outcome = loop {
            match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(0) => self.closed = Some(Closed::Eof),
            Ok(read) => {
                self.received.extend_from_slice(&buffer[..read]);
                return true;
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                    self.closed = Some(Closed::Cut);
                }
                _ => panic!("cannot read: {error}"),
            },
        }
        false
    }
}
