//! Simulated clusters: years of them in an hour, under faults, and each of them again
//! from its seed.
//!
//! A run is one thread, one queue of events in virtual time and one source of chance.
//! What happens in it depends on its seed alone, so a failure is its seed: the command
//! that a [`Failure`] ends with makes it happen again.
//!
//! ```
//! use ticketing_simulation::run;
//!
//! let outcome = run(1, None);
//! assert_eq!(outcome.broken, None);
//! assert_eq!(run(1, None), outcome);
//! ```
//!
//! # What is real
//!
//! | part | real | simulated |
//! |---|---|---|
//! | deciding | `Decider`, `Engine`, with all gates, queues and leases | the driver's loop around them: what comes goes in, batches are proposed, answers go out |
//! | applied state | `Replica`, `Table`, records, snapshots as bytes | when they are taken, sent and installed |
//! | wire | the codec of `ticketing-protocol`, both ways, over streams that stop and break at any byte | sockets; no handshake, no TLS |
//! | client | the session: what was sent, what an answer is bound to, how long a ticket is good, signs of life | the broker around it (which session is asked, what is tried again) and its callers, by the same rules |
//! | log | conditional writes on a term, tails that are dropped, snapshots, replacement of voters | Raft: elections take no messages, and who is a member is known to all at once |
//! | time | leases and waits on the clock of whoever counts them | clocks that start anywhere and drift as far as the contract allows |
//!
//! # What an hour is
//!
//! A cluster-hour is an hour of virtual time of one cluster of 3 or 5 nodes and 2 to 6
//! clients. A run is one to two of them: 20 to 100 minutes of faults, and then 20 quiet
//! ones in which everything must come to an end. In the mean of a thousand hours, an
//! hour has 2,100 acquires (600 are granted to somebody who takes them, 560 time out,
//! 690 are refused, 105 are indeterminate), 1,100 entries of the log, 320 hand-offs, 165
//! leases that run out, 210 faults of 17 kinds, 72 offices that begin, 10 voters that are
//! replaced and 7 snapshots: 54,000 events. Stretches in which nothing happens cost
//! nothing, as time goes from one event to the next.
//!
//! A thousand hours take about 50 seconds of a processor in an everyday build, with its
//! assertions; `cargo xtask test` runs so many, on all processors.
//!
//! # Who judges
//!
//! The [ledger](Broken) sees all processes at once, in true time, and keeps its own
//! books of the log, of what clients were told and of who waits; and at the end of each
//! run the checker of `ticketing-history` gets what the clients saw, and no more. That
//! the judges see something is shown by [`Mutant`]s, faults that a run can be given, and,
//! with the feature `seeded-faults`, by faults in the engine itself (`tests/seeded`).

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
mod record;
mod repair;
mod run;
mod server;
mod time;
mod trace;
mod world;

pub use ledger::{Broken, Count};
pub use mutant::Mutant;
#[cfg(feature = "seeded-faults")]
pub use run::as_clients_see_it;
pub use run::{Campaign, Failure, Outcome, campaign, replay, run};
