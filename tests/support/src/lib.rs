//! Starts real Ticketing processes for tests and speaks raw bytes to them.
//!
//! * [`Server`]: a real `ticketing-server` process on ports that the system chose.
//! * [`Raw`]: a blocking client that sends exactly the bytes it is told to, good or bad.
//! * [`wire`]: those bytes, and [`Reply`]: what comes back. Written from the protocol's
//!   text alone, so that a mistake in the product's own codec cannot hide itself.
//! * [`Authority`]: certificates for tests.
//! * [`play_matrix`]: every request against every state of its key.
//! * [`wait_until`]: waits for a condition instead of sleeping and hoping.
//! * [`binary`]: a built binary of this workspace, made if it is missing or stale.
//!
//! Everything panics with a message where a test should fail: this is for tests only.
//!
//! ```
//! use ticketing_test_support::{Raw, Reply, Server};
//!
//! let server = Server::start(&[]);
//! let mut client = Raw::open(server.addr());
//! client.acquire("seat:12", 7, 0, 10);
//! let token = client.expect_granted("seat:12", 7);
//! client.release("seat:12", token);
//! client.expect(&Reply::released(token, "seat:12"));
//! ```
// A panic is how a test fails, and how it tells what came instead of the one right answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod binary;
mod certificate;
mod cluster;
mod matrix;
mod process;
mod queue;
mod raw;
mod server;
mod stream;
pub mod wire;

use std::time::{Duration, Instant};

pub use binary::binary;
pub use certificate::{Authority, Identity};
pub use cluster::Cluster;
pub use matrix::{MATRIX_ARGS, play_matrix};
pub use process::Usage;
pub use queue::{place, wait_for_queue};
pub use raw::{Closed, Raw};
pub use rustix::process::Signal;
pub use server::{Server, ServerBuilder};
pub use wire::Reply;

/// How long anything may take that should happen "at once": generous, because
/// the machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within `patience`; `what` says in the message what was waited for.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
