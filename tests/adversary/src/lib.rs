//! The server under attack.
//!
//! The attacks are in `tests/attack`, one file a kind. Here is what several of them share:
//!
//! * [`Recorder`]: notes what one connection sent and was told, and when, as a history
//!   that [`ticketing_history`] can judge.
//! * [`Load`]: many clients that do what clients do, the bad ones included.

mod load;
mod record;

pub use load::Load;
pub use record::Recorder;
