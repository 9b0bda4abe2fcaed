//! Replication of the lock state over Raft: 3 or 5 nodes that hold the same
//! [`Replica`](ticketing_engine::Replica), of which one decides.
//!
//! This crate alone names a type of openraft.

mod answering;
mod calls;
mod housekeeping;
mod image;
mod init;
mod life;
mod log;
mod machine;
mod network;
mod node;
mod office;
mod over;
mod peers;
mod registry;
mod report;
mod seats;
mod slots;
mod standing;
mod status;
mod timing;
mod types;

pub use init::{Init, InitError, wall_clock_token};
pub use node::{Cluster, Config};
pub use slots::{BadSlots, Slot, Slots};
pub use standing::{Leader, Stage, Standing};
pub use status::{MemberStatus, ROLES, Status};
pub use timing::Timing;
pub use types::NodeId;
