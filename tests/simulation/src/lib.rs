//! The lock engine, the replicated table and the client session under simulated time and faults.

mod checks;
mod client;
mod cluster;
mod context;
mod events;
mod faults;
mod ledger;
mod mutant;
mod network;
mod plan;
mod random;
mod run;
mod server;
mod time;
mod trace;
mod world;

pub use ledger::{Broken, Count};
pub use mutant::Mutant;
pub use run::{Campaign, Failure, Outcome, campaign, run};
