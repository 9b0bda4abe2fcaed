//! Client of the Ticketing lock service: FIFO distributed locks with fencing tokens.

mod acquire;
mod address;
pub mod blocking;
mod broker;
mod clock;
mod error;
mod input;
mod link;
mod options;
mod placement;
mod release;
mod session;
mod ticket;
mod tls;
mod trouble;
mod verify;

pub use acquire::Acquire;
pub use broker::{Builder, ConnectionStatus, TicketBroker};
pub use error::{ErrorKind, TicketError};
pub use options::{AcquireOptions, TlsOptions, Token};
pub use placement::{Place, Placement};
pub use ticket::{Grant, Ticket};
pub use ticketing_protocol::handshake::Domain;
pub use verify::Verdict;
