//! The Ticketing client for Node.js, up to where JavaScript takes over.
//!
//! Everything that a client does is done by the crate `ticketing`, on a thread
//! of its own. Here its requests get numbers, and their `Outcome`s
//! come back to the thread of JavaScript in batches (`Ended`).
//! Promises, signals, error classes and disposal are JavaScript's own business,
//! in `lib/`.
//!
//! Each environment of Node (the main thread, each worker) has its own objects.
//! When one ends, Node finalizes them, and that is all the cleaning up there is:
//! requests are cancelled, tickets given back, the broker ends.

#![allow(unsafe_code, reason = "the macros of napi expand to it; what is written here says why")]
#![allow(clippy::needless_pass_by_value, reason = "arguments of JavaScript come as values")]
#![allow(unreachable_pub, reason = "the macros of napi want it on what they export")]

mod core;
mod ended;
mod failure;
#[cfg(feature = "seeded-faults")]
mod faults;
mod outcome;
mod settings;
mod ticket;

use napi_derive::napi;
use ticketing::{AcquireOptions, ErrorKind};

/// What JavaScript must know as the core does.
#[napi(object, object_from_js = false)]
pub struct Constants {
    /// The version of this addon.
    pub version: &'static str,
    /// The default of `wait`, in seconds.
    pub wait: f64,
    /// The default of `lease`, in seconds.
    pub lease: f64,
    /// Every kind of error, by its shared name.
    pub kinds: Vec<&'static str>,
}

/// What JavaScript must know as the core does.
#[napi(catch_unwind)]
#[must_use]
pub fn constants() -> Constants {
    let AcquireOptions { wait, lease, .. } = AcquireOptions::default();
    Constants {
        version: env!("CARGO_PKG_VERSION"),
        wait: wait.as_secs_f64(),
        lease: lease.as_secs_f64(),
        kinds: ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect(),
    }
}
