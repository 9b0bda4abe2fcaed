//! The harness on trial: faults do what they are called, and what clients of a real
//! server see under them is judged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod lab;
mod proxies;
mod single;
