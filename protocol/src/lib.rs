//! The wire protocol of Ticketing: bytes in, frames out; no IO, no clock, no allocation a frame.
//!
//! Server and client share this crate, so there is one place where a byte gets its meaning.
//!
//! * [`limits`]: every number of the contract, with its unit.
//! * [`Key`]: a lock's name, checked once and carried as a proof of that.
//! * [`ClientFrame`], [`ServerFrame`]: what travels in each direction, and how it is written.
//! * [`Decoder`]: the incremental reader; any split of a stream gives the same frames.
//! * [`Reason`]: why a server closes a connection.
//! * [`handshake`]: greeting, challenge and response.
//!
//! ```
//! use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key};
//!
//! let mut wire = Vec::new();
//! let key = Key::new("seat:12")?;
//! ClientFrame::Acquire { wait: 30, lease: 10, owner: 7, key }.encode(&mut wire);
//!
//! let mut decoder = Decoder::<ClientToServer>::new(Extension::Off);
//! let mut seen = 0;
//! decoder.feed(&wire, |frame| {
//!     assert_eq!(frame, ClientFrame::Acquire { wait: 30, lease: 10, owner: 7, key });
//!     seen += 1;
//! })?;
//! assert_eq!(seen, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decode;
mod frame;
pub mod handshake;
mod key;
pub mod limits;
mod reason;

pub use decode::{ClientToServer, Decoder, Direction, Extension, Malformed, ServerToClient};
pub use frame::{ClientFrame, ServerFrame};
pub use key::{InvalidKey, Key};
pub use reason::Reason;
