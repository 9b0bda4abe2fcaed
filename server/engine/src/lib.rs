//! The lock engine of Ticketing: it decides who holds which key.
//!
//! A sans-IO state machine. What happens goes in as an [`Input`] with the time
//! at which it happened; what must be remembered comes out as a [`Batch`] of
//! [`Effect`]s, and what clients are told comes out as [`Answer`]s. There is no
//! socket, no clock, no thread and no randomness inside: the same inputs give
//! the same outputs, on every machine, in a test at a million steps a second as
//! in production.
//!
//! # Deciding ahead
//!
//! The engine keeps its table as if all that it proposed were done, so that
//! requests never wait for the log to be decided, only to be answered. A turn is
//! what was decided between two calls of [`Engine::seal`]; its effects are one
//! batch, and every answer that says something definite about the table waits
//! until that batch has committed. `TimedOut`, `Busy` and `Place` wait for
//! nothing: "you did not get it" is true whatever becomes of the log.
//!
//! # Applying
//!
//! In a cluster one node has an engine that decides, and every node has a [`Table`]:
//! what the batches that committed make of it. They go through the log as bytes
//! ([`record`]), and a node that was away too long gets a snapshot of the table
//! ([`Table::write`]). A node that takes office builds its engine from its own table
//! ([`Engine::restore`]); one that does not lead has an engine too, which was told
//! [`Input::Retire`] and refuses what only a leader can serve.
//!
//! # Example
//!
//! ```
//! use ticketing_engine::{Answer, Config, ConnId, Engine, Input, Request};
//!
//! let mut engine = Engine::new(Config::default());
//! let acquire = Request::Acquire { wait_secs: 0, lease_secs: 10, owner: 7, key: b"seat:12", received: 0 };
//! engine.handle(0, Input::Request(ConnId(1), acquire));
//!
//! // Nothing definite is said before the batch has committed.
//! let batch = engine.seal().expect("a grant must be replicated");
//! engine.drain(|_, _| unreachable!());
//!
//! engine.handle(0, Input::Committed(batch.seq()));
//! let mut answers = 0;
//! engine.drain(|conn, answer| {
//!     assert_eq!(conn, ConnId(1));
//!     assert_eq!(answer, Answer::Granted { token: 1, owner: 7, ends_ms: 10_000, key: b"seat:12" });
//!     answers += 1;
//! });
//! assert_eq!(answers, 1);
//! ```

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

mod bytes;
mod config;
mod connections;
mod decide;
mod decider;
mod engine;
#[cfg(feature = "seeded-faults")]
pub mod fault;
mod hash;
mod locks;
mod office;
mod pass;
mod queue;
pub mod record;
mod replica;
mod restore;
mod store;
mod table;
mod tape;
mod tombstones;
mod turns;
mod types;
mod waiters;

pub use config::{Config, Limits};
pub use decider::Decider;
pub use engine::{Engine, Stats};
pub use office::{Fate, Office};
pub use replica::{Broken, Place, Replica};
pub use table::{BadSnapshot, Buried, Held, Table, Violation};
pub use turns::Batch;
pub use types::{Answer, ConnId, Effect, Input, Nanos, Request, SECOND, Seq};
