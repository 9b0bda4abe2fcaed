//! Either end of a connection byte by byte, as the protocol is described and
//! not as the crate does it.

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use ticketing_peer::Party;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::node::settled;

pub(crate) const PREFIX: &[u8] = b"\xfeTICKPR\n\x01\x00";
pub(crate) const HELLO: usize = 90;
pub(crate) const CHALLENGE: usize = 42;
pub(crate) const PROOF: usize = 32;
pub(crate) const VERDICT: usize = 57;

fn party(party: Party) -> Vec<u8> {
    [&party.cluster.0[..], &party.node.to_le_bytes()].concat()
}

pub(crate) fn hello(from: Party, meant: Party) -> Vec<u8> {
    [PREFIX, &party(from), &party(meant), &[0xd1; 32]].concat()
}

pub(crate) fn challenge() -> Vec<u8> {
    [PREFIX, &[0x15; 32]].concat()
}

pub(crate) fn proof(secret: &[u8], label: &str, said: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(label.as_bytes());
    mac.update(&[0]);
    said.iter().for_each(|said| mac.update(said));
    mac.finalize().into_bytes().to_vec()
}

pub(crate) const DIALLER: &str = "ticketing peer proof: dialler";
pub(crate) const LISTENER: &str = "ticketing peer proof: listener";
const NO_TLS: [u8; 32] = [0; 32];

/// Bytes of a frame.
pub(crate) fn frame(kind: u8, id: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    [&len.to_le_bytes()[..], &[kind], &id.to_le_bytes(), body].concat()
}

/// One end of a connection.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    pub(crate) async fn connect(at: std::net::SocketAddr) -> Self {
        let tcp = TcpStream::connect(at).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Self(tcp)
    }

    /// Dials until the verdict, which it returns; `cut` bytes are sent at a time.
    pub(crate) async fn dial(&mut self, secret: &[u8], from: Party, meant: Party, cut: usize) -> Vec<u8> {
        let hello = hello(from, meant);
        self.send(&hello, cut).await;
        let challenge = self.take(CHALLENGE).await;
        assert_eq!(challenge[..PREFIX.len()], *PREFIX);
        self.send(&proof(secret, DIALLER, &[&hello, &challenge, &NO_TLS]), cut).await;
        let verdict = self.take(VERDICT).await;
        if verdict[0] != 1 {
            let expected = proof(secret, LISTENER, &[&hello, &challenge, &NO_TLS, &verdict[..25]]);
            assert_eq!(verdict[25..], expected);
        }
        verdict
    }

    /// A dialler that is let in.
    pub(crate) async fn admitted(at: std::net::SocketAddr, secret: &[u8], from: Party, meant: Party) -> Self {
        let mut wire = Self::connect(at).await;
        let verdict = wire.dial(secret, from, meant, usize::MAX).await;
        assert_eq!(verdict[0], 0, "refused");
        wire
    }

    /// A listener that lets the next dialler in, as `me`; `cut` bytes are sent at a time.
    pub(crate) async fn accept(listener: &TcpListener, secret: &[u8], me: Party, cut: usize) -> Self {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let mut wire = Self(tcp);
        let hello = wire.take(HELLO).await;
        let challenge = challenge();
        wire.send(&challenge, cut).await;
        let said: [&[u8]; 3] = [&hello, &challenge, &NO_TLS];
        assert_eq!(wire.take(PROOF).await, proof(secret, DIALLER, &said));
        let judgement = [&[0][..], &party(me)].concat();
        let verdict = proof(secret, LISTENER, &[&hello, &challenge, &NO_TLS, &judgement]);
        wire.send(&[judgement, verdict].concat(), cut).await;
        wire
    }

    pub(crate) async fn send(&mut self, bytes: &[u8], cut: usize) {
        for piece in bytes.chunks(cut.min(bytes.len()).max(1)) {
            self.0.write_all(piece).await.unwrap();
            // The other end gets to see the piece before the next one comes.
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        settled(self.0.read_exact(&mut taken)).await.unwrap();
        taken
    }

    /// Kind, id and body of the next frame.
    pub(crate) async fn frame(&mut self) -> (u8, u64, Bytes) {
        let len = settled(self.0.read_u32_le()).await.unwrap();
        let kind = self.0.read_u8().await.unwrap();
        let id = self.0.read_u64_le().await.unwrap();
        (kind, id, self.take(len as usize).await.into())
    }

    /// All that still comes until the other end closes; a reset is an end too.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = settled(self.0.read_to_end(&mut rest)).await;
        rest
    }
}
