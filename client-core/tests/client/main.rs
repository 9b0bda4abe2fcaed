//! The client as its users see it, over real sockets, against servers that the
//! tests write themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod blocking;
mod close;
mod common;
mod connections;
mod drops;
mod embed;
mod indeterminate;
mod leaders;
mod outcomes;
mod tls;
