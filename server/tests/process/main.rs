//! The real process: settings, signals, restarts, rotation, admin pages, bounds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admin;
mod bounds;
mod cluster;
mod log;
mod restart;
mod rotation;
mod settings;
mod signals;
mod threads;
