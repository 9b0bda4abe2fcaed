//! The same client for code without async: the same names, and each call
//! blocks its thread.
//!
//! A broker brings one thread of its own, with a small runtime for its
//! connections. Calls poll on the thread that makes them, so there may be as
//! many at once as there are threads, and none can panic for being made inside
//! an async runtime (where they block it all the same: use the async client).
//!
//! ```
//! # let server = ticketing_test_support::Server::start(&[]);
//! # let address = server.addr().to_string();
//! use std::time::Duration;
//! use ticketing::blocking::TicketBroker;
//!
//! let broker = TicketBroker::connect([address])?;
//! let ticket = broker.acquire("seat:12", Duration::from_secs(30), Duration::from_secs(10))?;
//! ticket.release()?;
//! broker.close();
//! # Ok::<(), ticketing::TicketError>(())
//! ```

use std::time::Duration;

use crate::embed::{Embedded, block_on};
use crate::{AcquireOptions, ConnectionStatus, Domain, Grant, TicketError, TlsOptions, Token};

/// Acquires and releases locks, over connections that it keeps by itself;
/// [the async one](crate::TicketBroker) for threads.
///
/// Cheap to clone; all clones are one broker. Its thread ends with
/// [`close`](TicketBroker::close), or within seconds when the last clone and
/// ticket is gone.
#[derive(Clone, Debug)]
pub struct TicketBroker(Embedded);

/// Builds a [`TicketBroker`]; the same settings as the async [`Builder`](crate::Builder).
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing before build()"]
pub struct Builder(crate::Builder);

/// A lock that is held. Dropped, it is given back in the background.
#[derive(Debug)]
#[must_use = "a ticket that is dropped is released at once"]
pub struct Ticket(crate::Ticket);

/// How an acquire that was cleared up stands.
#[derive(Debug)]
pub enum Verdict {
    /// The lock is held after all.
    Held(Ticket),
    /// It was not acquired, and never will be.
    NotAcquired,
}

impl Builder {
    /// Adds the address of one server; see [`Builder::address`](crate::Builder::address).
    pub fn address(self, address: impl AsRef<str>) -> Self {
        Self(self.0.address(address))
    }

    /// Adds the addresses of several servers.
    pub fn addresses<A: AsRef<str>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        Self(self.0.addresses(addresses))
    }

    /// The secret shared with the servers. Default: none.
    pub fn token(self, token: impl Into<Token>) -> Self {
        Self(self.0.token(token))
    }

    /// Speaks TLS. Default: plain TCP.
    pub fn tls(self, options: TlsOptions) -> Self {
        Self(self.0.tls(options))
    }

    /// Talks only to servers of this fencing domain. Default: any.
    pub fn expect_domain(self, domain: Domain) -> Self {
        Self(self.0.expect_domain(domain))
    }

    /// How many acquires, and how many releases, may be pending at once. Default: 16,384.
    pub fn max_pending(self, requests: usize) -> Self {
        Self(self.0.max_pending(requests))
    }

    /// Starts the broker's thread. Returns at once and connects in the background.
    ///
    /// # Errors
    /// As the async [`Builder::build`](crate::Builder::build); and
    /// `InvalidInput` if the thread cannot be started.
    pub fn build(self) -> Result<TicketBroker, TicketError> {
        Embedded::start(self.0).map(TicketBroker)
    }
}

impl TicketBroker {
    /// Starts to build a broker.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A broker with defaults: no token, no TLS. Returns at once and connects
    /// in the background.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn connect<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, TicketError> {
        Self::builder().addresses(addresses).build()
    }

    /// Waits in the queue of `key` for up to `wait`, then holds the lock for at
    /// most `lease`; see [`TicketBroker::acquire`](crate::TicketBroker::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, key: &str, wait: Duration, lease: Duration) -> Result<Ticket, TicketError> {
        block_on(self.0.broker().acquire(key, wait, lease)).map(Ticket)
    }

    /// One immediate try that never enters the queue; `Timeout` if the lock is held.
    ///
    /// # Errors
    /// As [`acquire`](TicketBroker::acquire).
    pub fn try_acquire(&self, key: &str, lease: Duration) -> Result<Ticket, TicketError> {
        block_on(self.0.broker().try_acquire(key, lease)).map(Ticket)
    }

    /// An acquire with all its options.
    ///
    /// # Errors
    /// As [`acquire`](TicketBroker::acquire).
    pub fn acquire_with(&self, key: &str, options: AcquireOptions) -> Result<Ticket, TicketError> {
        block_on(self.0.broker().acquire_with(key, options)).map(Ticket)
    }

    /// Gives back the lock that was granted under exactly this token.
    ///
    /// # Errors
    /// As [`TicketBroker::release`](crate::TicketBroker::release).
    pub fn release(&self, key: &str, token: u64) -> Result<(), TicketError> {
        block_on(self.0.broker().release(key, token))
    }

    /// Clears an `Indeterminate` acquire up.
    ///
    /// # Errors
    /// As [`TicketError::verify`].
    pub fn verify(&self, error: &TicketError, timeout: Duration) -> Result<Verdict, TicketError> {
        block_on(error.verify(timeout)).map(|verdict| match verdict {
            crate::Verdict::Held(ticket) => Verdict::Held(Ticket(ticket)),
            crate::Verdict::NotAcquired => Verdict::NotAcquired,
        })
    }

    /// Waits until a session is open that can be asked for locks.
    ///
    /// # Errors
    /// As [`TicketBroker::wait_ready`](crate::TicketBroker::wait_ready).
    pub fn wait_ready(&self, timeout: Duration) -> Result<(), TicketError> {
        block_on(self.0.broker().wait_ready(timeout))
    }

    /// How the connections stand, in the order of the addresses.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.0.broker().connections()
    }

    /// Ends the broker in order, its thread included; see
    /// [`TicketBroker::close`](crate::TicketBroker::close).
    pub fn close(&self) {
        self.0.close();
    }
}

impl Ticket {
    /// The lock's name.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// The fencing token: greater than that of every earlier grant in the domain.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// The owner number of the acquire, as the server knows it.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.0.owner()
    }

    /// The fencing domain, within which tokens compare, where the server named one.
    #[must_use]
    pub fn domain(&self) -> Option<Domain> {
        self.0.domain()
    }

    /// What is surely left of the lease; zero when nothing is.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Gives the lock back, and says whether it was still held.
    ///
    /// # Errors
    /// As [`Ticket::release`](crate::Ticket::release).
    pub fn release(self) -> Result<(), TicketError> {
        block_on(self.0.release())
    }

    /// Turns the ticket into plain data. Nothing releases it by itself then,
    /// but the end of its lease.
    #[must_use]
    pub fn detach(self) -> Grant {
        self.0.detach()
    }
}
