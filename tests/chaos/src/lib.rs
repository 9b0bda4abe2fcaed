//! Real server processes under faults, and real clients that say what they saw.
//!
//! * [`Network`]: hosts, each in a network namespace of its own ([`Lab`]) where the
//!   system allows it, or else loopback addresses behind proxies ([`Proxy`]).
//! * [`Cut`]: which hosts do not hear which others.
//! * [`Node`] and [`Cluster`]: server processes on those hosts, killed, paused, started
//!   again with nothing.
//! * [`Load`]: many clients on few keys. What they saw is a history for
//!   [`ticketing_history::check`].
//!
//! Everything panics with a message where a test should fail: this is for tests only.
// A panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clock;
mod cluster;
mod disk;
mod faults;
mod lab;
mod load;
mod loopback;
mod network;
mod node;
mod proxy;

pub use clock::now;
pub use cluster::{Cluster, ClusterBuilder, Member, Status};
pub use disk::slow_disks_are_missing;
pub use faults::Cut;
pub use lab::Lab;
pub use load::{Load, Running};
pub use loopback::Loopback;
pub use network::{Host, Network, Place};
pub use node::Node;
pub use proxy::{Proxy, Way};
