//! The transport from outside: real sockets, real time, and ends that are
//! written here anew, from the description of the bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounds;
mod calls;
mod descriptors;
mod door;
mod logs;
mod node;
mod reconnect;
mod tls;
mod wire;
