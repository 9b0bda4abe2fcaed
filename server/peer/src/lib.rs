//! Authenticated, pipelined calls between the nodes of a cluster.
//!
//! A node serves its peers with [`serve`] and calls each of them through a
//! [`Peer`]. A connection carries calls in one direction only, so that two nodes
//! that call each other have two. What the calls mean is not known here.
//!
//! Both ends prove that they know the [`Secret`] before anything else is read,
//! and agree on who they are and who is meant: a call never reaches a node of
//! another cluster, nor one that has taken the place of the node that is meant.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ticketing_peer::{Call, ClusterId, Config, Handler, Limits, Link, Party, Peer, Refusal, Secret, Service};
//! use tokio::time::Instant;
//!
//! const CLUSTER: ClusterId = ClusterId([7; 16]);
//! const ALICE: Party = Party { cluster: CLUSTER, node: 1 };
//! const BOB: Party = Party { cluster: CLUSTER, node: 2 };
//!
//! /// Node 2 says everything twice.
//! struct Bob;
//!
//! impl Service for Bob {
//!     fn me(&self) -> Party {
//!         BOB
//!     }
//!     fn admit(&self, _: Party, _: Party) -> Result<(), Refusal> {
//!         Ok(())
//!     }
//!     fn connected(&self, _: Link) -> Box<dyn Handler> {
//!         Box::new(Bob)
//!     }
//! }
//!
//! impl Handler for Bob {
//!     fn call(&mut self, call: Call) {
//!         call.reply.send([&call.body[..], &call.body].concat());
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = Secret::new(b"in truth, of random bytes")?;
//! let config = Config { secret, tls: None, limits: Limits::default() };
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?.to_string();
//! tokio::spawn(ticketing_peer::serve(listener, Arc::new(Bob), config.clone(), std::future::pending()));
//!
//! let bob = Peer::new(address, ALICE, BOB, config);
//! let answer = bob.call(1, "hey", Instant::now() + Duration::from_secs(1)).await?;
//! assert_eq!(answer, "heyhey");
//! # Ok(())
//! # }
//! ```

mod answering;
mod asking;
mod config;
mod dialler;
mod files;
mod frame;
mod handshake;
mod identity;
mod outbox;
mod pair;
mod peer;
mod quiet;
mod refusal;
mod secret;
mod serve;
mod service;
mod socket;
mod tls;

pub use config::{Config, Limits};
pub use files::{FileError, SECRET_BYTES, read_file};
pub use identity::{ClusterId, Link, Party};
pub use pair::{CertifiedPair, PairError};
pub use peer::{CallError, CallResult, Peer, PendingCall};
pub use refusal::{Refusal, VERSION};
pub use secret::{Secret, SecretTooShort};
pub use serve::serve;
pub use service::{Call, Handler, Reply, Service};
pub use tls::{PeerTls, PeerTlsError, PeerTlsFiles};
