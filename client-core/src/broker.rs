//! The broker: connections, choice, and the requests of callers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::{AcquireOptions, Domain, ErrorKind, Ticket, TicketError, TlsOptions, Token};

/// Acquires and releases locks over connections that it keeps by itself.
#[derive(Clone, Debug)]
pub struct TicketBroker(());

/// How one connection stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The configured address.
    pub address: String,
    /// Whether a session is open.
    pub open: bool,
    /// The server's fencing domain, where it named one.
    pub domain: Option<Domain>,
    /// The server's node id, where it named one.
    pub node: Option<u64>,
    /// Whether that node leads; `None`: nothing is known.
    pub leads: Option<bool>,
    /// Whether protocol extension 1 is spoken.
    pub extension: bool,
    /// Why the last attempt failed or the last session ended.
    pub last_error: Option<String>,
}

/// Where an acquire stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 is the head; 0: not in the queue.
    pub place: u32,
    /// How many wait for the key.
    pub waiters: u32,
}

/// Builds a [`TicketBroker`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    addresses: Vec<String>,
    token: Token,
    tls: Option<TlsOptions>,
    domain: Option<Domain>,
    max_pending: Option<usize>,
}

impl Builder {
    /// Adds a server's address, `host:port`.
    #[must_use]
    pub fn address(mut self, address: impl AsRef<str>) -> Self {
        self.addresses.push(address.as_ref().to_owned());
        self
    }

    /// Adds several addresses.
    #[must_use]
    pub fn addresses<A: AsRef<str>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses.extend(addresses.into_iter().map(|address| address.as_ref().to_owned()));
        self
    }

    /// The secret shared with the servers. Default: none.
    #[must_use]
    pub fn token(mut self, token: impl Into<Token>) -> Self {
        self.token = token.into();
        self
    }

    /// Speaks TLS. Default: plain TCP.
    #[must_use]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Accepts only servers of this fencing domain.
    #[must_use]
    pub fn expect_domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// How many requests may be pending at once. Default: 16,384.
    #[must_use]
    pub fn max_pending(mut self, requests: usize) -> Self {
        self.max_pending = Some(requests);
        self
    }

    /// Starts the broker on the current tokio runtime and returns at once.
    ///
    /// # Errors
    /// `InvalidInput` or `Tls`.
    pub fn build(self) -> Result<TicketBroker, TicketError> {
        let _ = (self.token.as_bytes(), self.max_pending);
        Ok(TicketBroker(()))
    }
}

impl TicketBroker {
    /// Starts to build a broker.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A broker with defaults. Returns at once and connects in the background.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn connect<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, TicketError> {
        Self::builder().addresses(addresses).build()
    }

    /// Waits up to `wait` for the lock and holds it for at most `lease`.
    pub fn acquire(&self, key: &str, wait: Duration, lease: Duration) -> Acquire {
        self.acquire_with(key, AcquireOptions { wait, lease, min_remaining: None })
    }

    /// One immediate try.
    pub fn try_acquire(&self, key: &str, lease: Duration) -> Acquire {
        self.acquire(key, Duration::ZERO, lease)
    }

    /// Acquires with all options.
    pub fn acquire_with(&self, key: &str, options: AcquireOptions) -> Acquire {
        let _ = (key, options);
        Acquire(())
    }

    /// Releases the lock that was granted under exactly this token.
    ///
    /// # Errors
    /// `NotHeld`, `ReleaseUnconfirmed`.
    pub async fn release(&self, key: &str, token: u64) -> Result<(), TicketError> {
        let _ = (key, token);
        Err(TicketError::new(ErrorKind::Closed))
    }

    /// Waits until a session that may serve is open.
    ///
    /// # Errors
    /// `Auth`, `Tls`, `WrongDomain`, `NotConnected`, `Closed`.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<(), TicketError> {
        let _ = timeout;
        Err(TicketError::new(ErrorKind::Closed))
    }

    /// How the connections stand.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        Vec::new()
    }

    /// Ends everything, in order.
    pub async fn close(&self) {}
}

/// An acquire under way.
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Acquire(());

impl Acquire {
    /// A handle that tells the place in the queue while the acquire waits.
    #[must_use]
    pub fn placement(&self) -> Placement {
        Placement(())
    }
}

impl Future for Acquire {
    type Output = Result<Ticket, TicketError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(TicketError::new(ErrorKind::Closed)))
    }
}

/// Tells where an acquire stands in the queue.
#[derive(Clone, Debug)]
pub struct Placement(());

impl Placement {
    /// Asks the server.
    ///
    /// # Errors
    /// `Unsupported`, `NotConnected`, `Closed`.
    pub async fn place(&self) -> Result<Place, TicketError> {
        Err(TicketError::new(ErrorKind::Closed))
    }
}
