//! A server that does what the test says, frame by frame.

use std::collections::VecDeque;

use ticketing_protocol::handshake::{Greeting, Response};
use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key, ServerFrame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{PATIENCE, soon};

pub(crate) const NONCE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Acquire { wait: u8, lease: u8, owner: u64, key: String },
    Release { token: u64, key: String },
    Cancel { owner: u64, key: String },
    Place { owner: u64, key: String },
    Verify { owner: u64, key: String },
}

pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

/// One listening address.
pub(crate) struct Scripted {
    listener: TcpListener,
    pub(crate) address: String,
}

/// How a server introduces itself.
#[derive(Clone, Debug)]
pub(crate) struct Intro {
    pub(crate) greeting: String,
    pub(crate) extension: bool,
    /// The address in the first `L`; `None`: no first frame.
    pub(crate) leader: Option<String>,
}

impl Intro {
    /// Extension 1, and it leads itself, under this name.
    pub(crate) fn leader(name: &str) -> Self {
        Self::follower(name, name)
    }

    /// Extension 1, under this name, and it says that `leader` leads.
    pub(crate) fn follower(name: &str, leader: &str) -> Self {
        let greeting =
            Greeting { own_address: Some(name), extension: true, nonce: NONCE, ..Greeting::default() };
        Self { greeting: line(&greeting), extension: true, leader: Some(leader.to_owned()) }
    }

    /// Base version 1: no field, no first frame.
    pub(crate) fn base() -> Self {
        let greeting = Greeting { nonce: NONCE, ..Greeting::default() };
        Self { greeting: line(&greeting), extension: false, leader: None }
    }
}

fn line(greeting: &Greeting<'_>) -> String {
    let mut bytes = Vec::new();
    greeting.encode(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

impl Scripted {
    pub(crate) async fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    /// A raw connection, before any byte.
    pub(crate) async fn accept_raw(&self) -> TcpStream {
        soon("a connection", self.listener.accept()).await.unwrap().0
    }

    /// A connection behind its handshake.
    pub(crate) async fn accept(&self, intro: &Intro) -> Peer {
        let stream = self.accept_raw().await;
        stream.set_nodelay(true).unwrap();
        Peer::greet(Box::new(stream), intro).await
    }

    /// Leading itself, under its own address, with extension 1.
    pub(crate) async fn accept_leading(&self) -> Peer {
        self.accept(&Intro::leader(&self.address)).await
    }
}

/// The server's end of one connection.
pub(crate) struct Peer {
    stream: Box<dyn Wire>,
    decoder: Decoder<ClientToServer>,
    asked: VecDeque<Asked>,
    /// The client's answer to the greeting.
    pub(crate) response: String,
    /// Bytes that came behind the handshake.
    pub(crate) bytes_read: usize,
}

impl Peer {
    /// The handshake, from the server's end. The token is not looked at.
    pub(crate) async fn greet(mut stream: Box<dyn Wire>, intro: &Intro) -> Self {
        stream.write_all(intro.greeting.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut response = Vec::new();
        while response.last() != Some(&b'\n') {
            response.push(soon("a response", stream.read_u8()).await.unwrap());
        }
        response.pop();
        let extension = Response::parse(&response).unwrap().extension;
        assert_eq!(extension, intro.extension, "the client wants what the server announces");
        let decoder = Decoder::new(if extension { Extension::On } else { Extension::Off });
        let response = String::from_utf8(response).unwrap();
        let mut peer = Self { stream, decoder, asked: VecDeque::new(), response, bytes_read: 0 };
        if let Some(leader) = &intro.leader {
            peer.send(ServerFrame::Leader { address: leader }).await;
        }
        peer
    }

    pub(crate) async fn send(&mut self, frame: ServerFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send_raw(&bytes).await;
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        // A client that has gone is the test's business.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub(crate) async fn grant(&mut self, owner: u64, token: u64, ends_ms: u32, key: &str) {
        let key = Key::new(key).unwrap();
        self.send(ServerFrame::GrantedUntil { token, owner, ends_ms, key }).await;
    }

    pub(crate) async fn busy(&mut self, owner: u64, key: &str) {
        self.send(ServerFrame::Busy { owner, key: Key::new(key).unwrap() }).await;
    }

    pub(crate) async fn released(&mut self, token: u64, key: &str) {
        self.send(ServerFrame::Released { token, key: Key::new(key).unwrap() }).await;
    }

    /// The next request; `None`: the client closed the connection.
    pub(crate) async fn next_or_end(&mut self) -> Option<Asked> {
        loop {
            if let Some(asked) = self.asked.pop_front() {
                return Some(asked);
            }
            let mut bytes = [0; 4096];
            let count = match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => count,
            };
            self.bytes_read += count;
            let asked = &mut self.asked;
            self.decoder.feed(&bytes[..count], |frame| asked.push_back(own(frame))).unwrap();
        }
    }

    pub(crate) async fn next(&mut self) -> Asked {
        soon("a request", self.next_or_end()).await.expect("the client closed the connection")
    }

    /// The owner of the acquire that must come next.
    pub(crate) async fn next_acquire(&mut self) -> u64 {
        match self.next().await {
            Asked::Acquire { owner, .. } => owner,
            other => panic!("an acquire was expected, not {other:?}"),
        }
    }

    /// The token of the release that must come next.
    pub(crate) async fn next_release(&mut self) -> u64 {
        match self.next().await {
            Asked::Release { token, .. } => token,
            other => panic!("a release was expected, not {other:?}"),
        }
    }

    /// Nothing but keep-alives comes for that long.
    pub(crate) async fn quiet_for(&mut self, time: std::time::Duration) {
        if let Ok(asked) = tokio::time::timeout(time, self.next_or_end()).await {
            panic!("nothing was expected, not {asked:?}");
        }
    }

    /// The client closes the connection, and asks nothing more before.
    pub(crate) async fn ended(&mut self) {
        let end = tokio::time::timeout(PATIENCE, self.next_or_end()).await;
        assert_eq!(end.expect("the connection did not end"), None);
    }
}

fn own(frame: ClientFrame<'_>) -> Asked {
    let text = |key: Key<'_>| key.as_str().to_owned();
    match frame {
        ClientFrame::Acquire { wait, lease, owner, key } => {
            Asked::Acquire { wait, lease, owner, key: text(key) }
        }
        ClientFrame::Release { token, key } => Asked::Release { token, key: text(key) },
        ClientFrame::Cancel { owner, key } => Asked::Cancel { owner, key: text(key) },
        ClientFrame::Place { owner, key } => Asked::Place { owner, key: text(key) },
        ClientFrame::Verify { owner, key } => Asked::Verify { owner, key: text(key) },
    }
}
