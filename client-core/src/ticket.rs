//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use crate::broker::{Lane, Lifeline, Permit, Shared};
use crate::clock;
use crate::error::Cause;
use crate::input::Wish;
use crate::release::{Explicit, ReleaseJob};
use crate::{Domain, TicketError};

/// A grant that somebody must give back: dropped, it does so by itself.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    key: Arc<str>,
    token: u64,
    /// Of the acquire, until somebody has taken the grant.
    permit: Option<Permit>,
    /// Whether dropping it gives the lock back.
    armed: bool,
}

impl Hold {
    pub(crate) fn new(permit: Permit, key: Arc<str>, token: u64) -> Self {
        Self { shared: Arc::clone(permit.shared()), key, token, permit: Some(permit), armed: true }
    }

    /// Takes the duty to give it back over.
    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let permit = match self.permit.take() {
            Some(permit) => Some(permit.for_late_grant()),
            None => self.shared.admit(Lane::Dropped),
        };
        match permit {
            Some(permit) => {
                self.shared.compensate(ReleaseJob::new(permit, Arc::clone(&self.key), self.token));
            }
            None => tracing::warn!(
                key = &*self.key,
                token = self.token,
                "too many tickets were dropped at once: a lock is left to its lease"
            ),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("key", &self.key).field("token", &self.token).finish_non_exhaustive()
    }
}

/// A lock that is held.
///
/// Give it back with [`release`](Ticket::release), which says whether the lock
/// was still held. A ticket that is dropped is given back too, in the
/// background, as well as that can be done within 5 s; the lease ends what fails. Up to
/// 16,384 dropped tickets may wait for that at a time: one that finds no room is left to
/// its lease, and a warning names it.
///
/// Holding a ticket proves little to a database: a process can sleep through
/// the end of its lease. Store the [`token`](Ticket::token) with what the lock
/// protects, and refuse writes with a smaller one, in the same transaction.
///
/// ```
/// # let server = ticketing_test_support::Server::start(&[]);
/// # let address = server.addr().to_string();
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
/// use ticketing::TicketBroker;
///
/// let broker = TicketBroker::connect([address])?;
/// let wait = Duration::from_secs(30);
/// let ticket = broker.acquire("seat:12", wait, Duration::from_secs(10)).await?;
/// assert!(ticket.remaining() > Duration::from_secs(5));
/// let token = ticket.token();
/// drop(ticket);
///
/// let next = broker.acquire("seat:12", wait, Duration::from_secs(10)).await?;
/// assert!(next.token() > token);
/// next.release().await?;
/// # Ok::<(), ticketing::TicketError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a ticket that is dropped is released at once"]
pub struct Ticket {
    // Dropped in this order: the release is queued before the tasks may end.
    hold: Hold,
    lifeline: Arc<Lifeline>,
    owner: u64,
    domain: Option<Domain>,
    ends_at: u64,
}

/// A held lock as plain data; nothing releases it by itself.
///
/// For handing the lock to another process: it is released by its key and token
/// ([`TicketBroker::release`](crate::TicketBroker::release)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lock's name.
    pub key: String,
    /// The fencing token.
    pub token: u64,
    /// The owner number of the acquire.
    pub owner: u64,
    /// The fencing domain, where the server named one.
    pub domain: Option<Domain>,
    /// What was surely left of the lease when the ticket was detached.
    pub remaining: Duration,
}

impl Ticket {
    /// Accepts a grant, unless too little of its lease is left; then it is
    /// given back.
    pub(crate) fn accept(
        hold: Hold,
        lifeline: Arc<Lifeline>,
        owner: u64,
        domain: Option<Domain>,
        ends_at: u64,
        wish: Wish,
    ) -> Result<Self, Cause> {
        let mut ticket = Self { hold, lifeline, owner, domain, ends_at };
        let left = ticket.remaining();
        let wanted = Duration::from_nanos(wish.min_remaining);
        if left.is_zero() || left < wanted {
            Err(Cause::InsufficientLease { left, wanted })
        } else {
            ticket.hold.permit = None;
            Ok(ticket)
        }
    }

    /// The lock's name.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.hold.key
    }

    /// The fencing token: greater than that of every earlier grant in the
    /// [domain](Ticket::domain), whatever the key.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The owner number of the acquire, as the server knows it.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// The fencing domain, within which tokens compare, where the server named one.
    #[must_use]
    pub fn domain(&self) -> Option<Domain> {
        self.domain
    }

    /// What is surely left of the lease; zero when nothing is.
    ///
    /// Counted from before the request left, less half a percent for the drift
    /// of two clocks, on a clock that goes on while the machine sleeps (Linux).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        Duration::from_nanos(self.ends_at.saturating_sub(clock::now()))
    }

    /// Gives the lock back, and says whether it was still held.
    ///
    /// Tried for up to 5 s, over every connection that can serve. If the future
    /// is dropped before its end, the release goes on in the background.
    ///
    /// # Errors
    /// `NotHeld`: the lease had run out, and somebody else may have had the lock
    /// since. `ReleaseUnconfirmed`: no word came within 5 s. And where nothing was sent:
    /// `Closed` after [`close`](crate::TicketBroker::close), `Auth`, `Tls` and
    /// `WrongDomain`: the lock is left to its lease; `ClientCapacity`: the lock is
    /// given back in the background.
    pub async fn release(self) -> Result<(), TicketError> {
        let Self { mut hold, lifeline, .. } = self;
        let Some(permit) = hold.shared.admit(Lane::Release) else {
            let full = Cause::ClientCapacity(hold.shared.max_pending());
            return Err(full.about_release(&hold.key, hold.token));
        };
        let job = ReleaseJob::new(permit, Arc::clone(&hold.key), hold.token);
        hold.disarm();
        let span = tracing::debug_span!("release", key = &*hold.key, token = hold.token);
        let outcome = Explicit::new(job).instrument(span).await;
        drop(lifeline);
        outcome
    }

    /// Turns the ticket into plain data. Nothing releases it by itself then,
    /// but the end of its lease.
    #[must_use]
    pub fn detach(mut self) -> Grant {
        self.hold.disarm();
        Grant {
            key: self.key().to_owned(),
            token: self.token(),
            owner: self.owner,
            domain: self.domain,
            remaining: self.remaining(),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("key", &self.key())
            .field("token", &self.token())
            .field("owner", &self.owner)
            .field("domain", &self.domain)
            .field("remaining", &self.remaining())
            .finish()
    }
}
