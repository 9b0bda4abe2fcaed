//! Client of the Ticketing lock service: FIFO distributed locks with fencing tokens.

pub mod blocking;
mod broker;
mod error;
mod options;
mod ticket;

pub use broker::{Acquire, Builder, ConnectionStatus, Place, Placement, TicketBroker};
pub use error::{ErrorKind, TicketError};
pub use options::{AcquireOptions, TlsOptions, Token};
pub use ticket::{Grant, Ticket, Verdict};
pub use ticketing_protocol::handshake::Domain;
