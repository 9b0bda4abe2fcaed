//! Replication of the lock state over Raft: 3 or 5 nodes that hold the same
//! [`Replica`](ticketing_engine::Replica), of which one decides.
//!
//! This crate alone names a type of openraft.

/// Whether a test has put this mistake in.
#[cfg(feature = "seeded-faults")]
macro_rules! fault {
    ($name:ident) => {
        crate::fault::Fault::$name.is_seeded()
    };
}
#[cfg(not(feature = "seeded-faults"))]
macro_rules! fault {
    ($name:ident) => {
        false
    };
}

mod alone;
mod answering;
mod born;
mod calls;
mod durable;
#[cfg(feature = "seeded-faults")]
pub mod fault;
mod housekeeping;
mod image;
mod init;
mod life;
mod log;
mod machine;
mod marker;
mod network;
mod node;
mod office;
mod over;
mod peers;
mod proposal;
mod registry;
mod report;
mod riding;
mod seats;
mod slots;
mod standing;
mod status;
mod timing;
mod types;

pub use alone::Alone;
pub use durable::DataDirError;
pub use housekeeping::LOG_MEMORY;
pub use init::{Init, InitError, wall_clock_token};
pub use marker::StateDirError;
pub use node::{Cluster, Config, StartError};
pub use slots::{BadSlots, MAX_ADDRESS_BYTES, Slot, Slots, is_address};
pub use standing::{Leader, Stage, Standing};
pub use status::{MemberStatus, ROLES, Status};
pub use timing::Timing;
pub use types::NodeId;
