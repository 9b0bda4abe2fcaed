//! Clusters of nodes in one process, each with a runtime of its own; to drop that
//! runtime is to kill the node.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod alone;
mod durable;
mod full;
mod killed;
mod lab;
mod leases;
mod marker;
mod volatile;
