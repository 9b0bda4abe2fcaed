//! Histories of lock operations, and what must hold for them.
//!
//! * [`History`]: what clients asked, when, and what they were told; from any number
//!   of processes, as lines of JSON ([`History::read`], [`write_line`]).
//! * [`check`]: says which promises of a lock service a history breaks. It knows the
//!   promises, and nothing about how any service keeps them.
//!
//! All is told from the clients' side, by one clock, so each rule is stated with what
//! is certain there. A request took effect at some moment between its invocation and
//! its return. A client holds a lock for certain from the return of its acquire until
//! it first asks for the release, or until the conservative end of its lease. What a
//! correct service can answer is never reported, however late its messages come;
//! what is reported, no order of events can explain.
//!
//! ```
//! use ticketing_history::{Call, History, Op, Outcome, Returned, Rule, Rules, SECOND, check};
//!
//! let acquire = |id, invoked, at, token| Op {
//!     id,
//!     process: id,
//!     lane: None,
//!     key: "seat:12".to_owned(),
//!     call: Call::acquire(5, 10),
//!     invoked,
//!     returned: Some(Returned { at, outcome: Outcome::Granted { token, ends: None } }),
//! };
//! let mut history = History::default();
//! history.ops.push(acquire(1, SECOND, 2 * SECOND, 100));
//! history.ops.push(acquire(2, SECOND, 3 * SECOND, 101));
//!
//! let violations = check(&history, &Rules::default());
//! assert_eq!(violations[0].rule, Rule::Exclusion);
//! println!("{}", violations[0]);
//! ```

mod check;
mod facts;
mod lines;
mod model;
mod report;
mod rules;
mod summary;

pub use check::{Rules, check};
pub use lines::{BadLine, write_line};
pub use model::{Call, Event, History, Lane, Nanos, Note, Op, Outcome, Returned, SECOND};
pub use report::{Rule, Violation};
pub use summary::Summary;
