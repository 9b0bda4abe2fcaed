//! The broker: connections kept in the background, and the requests of callers.

mod builder;
mod directory;
mod keeper;
mod shared;
mod standing;
mod supervise;

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

pub use builder::Builder;
#[cfg(test)]
pub(crate) use directory::Directory;
pub(crate) use directory::{Phase, Route};
pub(crate) use shared::{Lane, Lifeline, NoLink, Permit, Shared};

use crate::acquire::Acquire;
use crate::clock::{self, nanos};
use crate::error::Cause;
use crate::input::check_key;
use crate::release::{Explicit, ReleaseJob};
use crate::{AcquireOptions, Domain, TicketError};

/// Acquires and releases locks, over connections that it keeps by itself.
///
/// Cheap to clone; all clones are one broker. Its tasks run on the runtime on
/// which it was built and end with [`close`](TicketBroker::close), or when the
/// last clone, ticket and acquire is gone.
///
/// ```
/// # let server = ticketing_test_support::Server::start(&[]);
/// # let address = server.addr().to_string();
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
/// use ticketing::{ErrorKind, TicketBroker};
///
/// let broker = TicketBroker::connect([address])?;
/// match broker.acquire("seat:12", Duration::from_secs(30), Duration::from_secs(10)).await {
///     Ok(ticket) => {
///         // The critical section, guarded by ticket.token().
///         ticket.release().await?;
///     }
///     Err(error) if error.kind() == ErrorKind::Timeout => println!("sold to somebody else"),
///     Err(error) => return Err(error),
/// }
/// broker.close().await;
/// # Ok::<(), ticketing::TicketError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TicketBroker(Arc<Lifeline>);

/// How one connection of a broker stands.
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
    /// Why the last attempt failed or the last session ended, or what the first one
    /// waits for; `None` while open.
    pub last_error: Option<String>,
}

impl TicketBroker {
    /// Starts to build a broker.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let broker = ticketing::TicketBroker::builder()
    ///     .address("localhost:5225")
    ///     .token("a secret of 16+ bytes")
    ///     .build()?;
    /// assert_eq!(broker.connections().len(), 2, "two, since there is a single address");
    /// # broker.close().await;
    /// # Ok::<(), ticketing::TicketError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A broker with defaults: no token, no TLS. Returns at once and connects
    /// in the background; a server that is not there yet is found when it comes.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn connect<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, TicketError> {
        Self::builder().addresses(addresses).build()
    }

    /// Waits in the queue of `key` for up to `wait` (at most 255 s; 0 is one
    /// immediate try), then holds the lock for at most `lease` (1 s to 250 s).
    ///
    /// The lock is not re-entrant: its holder queues like anybody else.
    ///
    /// # Errors
    /// - `Timeout`, `Busy`, `NotConnected`: certainly not acquired.
    /// - `Indeterminate`: sent, and the outcome is unknown. It is never sent
    ///   again by itself; [`TicketError::verify`] clears it up.
    /// - `InsufficientLease`: granted too late to be of use, and given back.
    /// - `InvalidInput`, `ClientCapacity`, `Closed`: nothing was sent.
    /// - `Auth`, `Tls`, `WrongDomain`: every connection fails for that reason.
    pub fn acquire(&self, key: &str, wait: Duration, lease: Duration) -> Acquire {
        self.acquire_with(key, AcquireOptions { wait, lease, min_remaining: None })
    }

    /// One immediate try that never enters the queue; `Timeout` if the lock is held.
    ///
    /// # Errors
    /// As [`acquire`](TicketBroker::acquire).
    pub fn try_acquire(&self, key: &str, lease: Duration) -> Acquire {
        self.acquire(key, Duration::ZERO, lease)
    }

    /// An acquire with all its options.
    ///
    /// # Errors
    /// As [`acquire`](TicketBroker::acquire).
    pub fn acquire_with(&self, key: &str, options: AcquireOptions) -> Acquire {
        Acquire::new(Arc::clone(&self.0), key, &options)
    }

    /// Gives back the lock that was granted under exactly this token, wherever
    /// it was granted. A ticket does that by itself; this is for a
    /// [`Grant`](crate::Grant).
    ///
    /// # Errors
    /// As [`Ticket::release`](crate::Ticket::release), and `InvalidInput`. With
    /// `ClientCapacity` nothing is done in the background: call it again.
    pub async fn release(&self, key: &str, token: u64) -> Result<(), TicketError> {
        check_key(key)?;
        let key = key.into();
        let Some(permit) = self.0.0.admit(Lane::Release) else {
            return Err(Cause::ClientCapacity(self.0.0.max_pending()).about_release(&key, token));
        };
        let span = tracing::debug_span!("release", key = &*key, token);
        Explicit::new(ReleaseJob::new(permit, key, token)).instrument(span).await
    }

    /// Waits until a session is open that can be asked for locks.
    ///
    /// # Errors
    /// `Auth`, `Tls` or `WrongDomain` as soon as every connection fails for
    /// that reason; `NotConnected` when the time is over; `Closed`.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<(), TicketError> {
        let until = clock::now().saturating_add(nanos(timeout));
        let ready = Arc::clone(&self.0.0).link(until, Phase::Open, |route| route.pick(0).cloned()).await;
        Ok(ready.map(drop).map_err(|no_link| match no_link {
            NoLink::Closed => Cause::Closed,
            NoLink::Refused(trouble) => Cause::Refused(trouble),
            NoLink::Late(trouble) => Cause::NotConnected(trouble),
        })?)
    }

    /// What the tasks hold: it keeps nothing alive.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0.0)
    }

    /// How the connections stand, in the order of the addresses.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.0.0.directory.statuses()
    }

    /// Ends the broker in order: no acquire begins any more, those that wait
    /// end (`Closed`, or `Indeterminate` where that cannot be known), releases
    /// under way are given a moment, then all tasks end.
    ///
    /// Returns when that is done, within 2 s. It is done all the same if the future is
    /// dropped, and closing twice does no harm. Tickets that are still held
    /// stay valid until their leases end, but can no longer be released here.
    pub async fn close(&self) {
        self.0.0.directory.advance(Phase::Draining);
        self.0.0.reached(Phase::Done).await;
    }
}
