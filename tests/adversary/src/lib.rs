//! The server under attack.
//!
//! The attacks are in `tests/attack`, one file a kind. Here is what several of them share:
//!
//! * [`Recorder`]: notes what one connection sent and was told, and when.
//! * [`check`]: the oracle. It knows what a lock service promises and nothing about
//!   how this one works, and says which promise a recorded history breaks.
//! * [`Load`]: many clients that do what clients do, the bad ones included.

mod load;
mod oracle;
mod record;

pub use load::Load;
pub use oracle::{Expect, Summary, Violation, check};
pub use record::{Acquire, Outcome, Recorder, Release, Session};
