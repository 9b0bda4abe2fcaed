//! Client of the Ticketing lock service: FIFO distributed locks with fencing tokens.
//!
//! ```
//! # let server = ticketing_test_support::Server::start(&[]);
//! # let address = server.addr().to_string();
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use std::time::Duration;
//! use ticketing::TicketBroker;
//!
//! let broker = TicketBroker::connect([address])?;
//! let ticket = broker.acquire("seat:12", Duration::from_secs(30), Duration::from_secs(10)).await?;
//! // Nobody else holds "seat:12" now. Guard what is written with ticket.token().
//! ticket.release().await?;
//! broker.close().await;
//! # Ok::<(), ticketing::TicketError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`TicketBroker`] keeps connections to all servers in the background, heals
//!   them by itself, and takes any number of requests at once.
//! * [`Acquire`] waits for a lock; drop it to leave the queue. [`Placement`]
//!   tells its place meanwhile.
//! * [`Ticket`] is a lock that is held, with its fencing token; dropped, it is
//!   given back.
//! * [`TicketError`] says what went wrong; its [`ErrorKind`] is what code looks
//!   at, and is the same in every language.
//! * [`blocking`] is the same for code without async; [`embed`] is for bindings of
//!   other languages.
//!
//! # What is certain
//! An acquire ends in exactly one way. It is sent again by itself only if not
//! one byte of it was handed to a socket before. If it was sent and no answer
//! came, it is [`Indeterminate`](ErrorKind::Indeterminate): the lock may be
//! held in your name, so do not enter the critical section; ask
//! [`TicketError::verify`], or let the lease end it. A grant that arrives when
//! its caller has gone is given back by the client itself.
//!
//! # What no lock can do
//! A process can be stopped with the lock in its hand and wake up when the
//! lease is over. [`Ticket::remaining`] tells, but time passes after every
//! question. What guards the data is the fencing token: write it with the data,
//! in the same transaction, only where the one stored there is not greater.

mod acquire;
mod address;
pub mod blocking;
mod broker;
mod clock;
pub mod embed;
mod error;
mod input;
mod link;
mod options;
mod placement;
mod release;
#[doc(hidden)]
pub mod sans_io;
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

// The Rust of the README is compiled and run like every other example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
