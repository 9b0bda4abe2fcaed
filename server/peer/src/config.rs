//! Settings of the peer transport.

use std::time::Duration;

use crate::{PeerTls, Secret};

/// How a node talks to its peers, in both directions.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all nodes know.
    pub secret: Secret,
    /// Whether the connections are under TLS: all of them, or none.
    ///
    /// Without it the handshake still keeps strangers out, but whoever can read
    /// or change the traffic between two nodes can do so after the handshake.
    pub tls: Option<PeerTls>,
    /// The bounds.
    pub limits: Limits,
}

/// The bounds of everything that could grow or last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the largest body of a call or an answer. The same on all nodes.
    pub max_body: u32,
    /// Calls of one connection that have not been answered. A [`Peer`] refuses
    /// more; a listener reads no more.
    ///
    /// [`Peer`]: crate::Peer
    pub calls: usize,
    /// Bytes of the bodies of all calls of one [`Peer`] that have not been
    /// answered. One call of the largest size always fits.
    ///
    /// [`Peer`]: crate::Peer
    pub call_bytes: usize,
    /// Connections that a listener serves at a time.
    pub connections: usize,
    /// Connections that have not proved the secret yet. The oldest makes place
    /// for one more.
    pub half_open: usize,
    /// How long a listener waits for the whole handshake, TLS included.
    pub handshake_timeout: Duration,
    /// How long a dialler tries to connect, handshake included.
    pub connect_timeout: Duration,
    /// How long a listener keeps a connection that it may not read from, because
    /// its calls are not answered or its answers are not taken.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 16 * 1024 * 1024,
            calls: 1024,
            call_bytes: 64 * 1024 * 1024,
            connections: 64,
            half_open: 16,
            handshake_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
        }
    }
}
