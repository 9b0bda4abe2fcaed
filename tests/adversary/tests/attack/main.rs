//! The server under attack: a real process, raw sockets, and nothing of the product in between.
//!
//! Most attacks have a number in their name, such as `a05_…`: the letter is the kind
//! (a framing, b authentication and TLS, c locks and queues, d leases and time,
//! j resources, k operation, x extension 1).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]
#![allow(clippy::cast_possible_truncation)] // Every number here is one of ours, and small.

mod authentication;
mod bounds;
mod bulk;
mod closing;
mod exhaustion;
mod expiry;
mod extension;
mod fairness;
mod flood;
mod framing;
mod histories;
mod keys;
mod matrix;
mod operation;
mod races;
mod restart;
mod stalls;
mod tls;

use std::thread;
use std::time::{Duration, Instant};

use ticketing_test_support::Server;

/// Runs `attack`, and says how long it took.
fn timed<T>(attack: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (attack(), start.elapsed())
}

/// Attacks a server that keeps everything in memory, and one that keeps it on disk:
/// there, an answer waits for the log.
fn in_every_mode(attack: impl Fn(&Server)) {
    attack(&Server::start(&[]));
    let folder = tempfile::tempdir().unwrap();
    attack(&Server::builder().data_dir(folder.path()).start());
}

/// Runs attacks that mostly wait, all at once.
fn at_once<const N: usize>(attacks: [Box<dyn FnOnce() + Send + '_>; N]) {
    thread::scope(|scope| {
        for attack in attacks {
            scope.spawn(attack);
        }
    });
}
