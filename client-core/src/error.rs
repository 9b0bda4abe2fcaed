//! One opaque error with a few kinds: a kind exists only where callers act
//! differently. The details are for people, in the text and the source chain.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ticketing_protocol::InvalidKey;
use ticketing_protocol::limits::{LEASE_SECS, MAX_WAIT_SECS};

use crate::Verdict;
use crate::address::BadAddress;
use crate::tls::BadTls;
use crate::trouble::{At, Trouble};
use crate::verify::Uncertain;

/// What went wrong, as far as a caller's next step depends on it.
///
/// Exhaustive on purpose: a new kind is a new decision for every caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The wait ran out in the queue. The lock was not acquired.
    Timeout,
    /// The server said no: it is at a limit, or does not lead now. Not acquired.
    Busy,
    /// Nothing was sent: no usable connection in time. Not acquired.
    NotConnected,
    /// The acquire was sent and its outcome is unknown. Do not enter the
    /// critical section; [`TicketError::verify`] can clear it up.
    Indeterminate,
    /// The lock came with too little of its lease left, and was released.
    InsufficientLease,
    /// Not held under that token: the lease ran out, or it was released before.
    NotHeld,
    /// The release was not confirmed in time. The lease will end the lock.
    ReleaseUnconfirmed,
    /// The server refused the token.
    Auth,
    /// TLS could not be set up, or the certificate is not trusted.
    Tls,
    /// The server belongs to another fencing domain than the expected one.
    WrongDomain,
    /// An argument breaks a rule; nothing was sent.
    InvalidInput,
    /// Too many requests are pending in this client; nothing was sent.
    ClientCapacity,
    /// The broker is closed.
    Closed,
    /// The server does not speak the protocol extension that this needs.
    Unsupported,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Timeout,
        Self::Busy,
        Self::NotConnected,
        Self::Indeterminate,
        Self::InsufficientLease,
        Self::NotHeld,
        Self::ReleaseUnconfirmed,
        Self::Auth,
        Self::Tls,
        Self::WrongDomain,
        Self::InvalidInput,
        Self::ClientCapacity,
        Self::Closed,
        Self::Unsupported,
    ];

    /// The name that every language shares.
    ///
    /// ```
    /// assert_eq!(ticketing::ErrorKind::NotConnected.as_str(), "not_connected");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::NotConnected => "not_connected",
            Self::Indeterminate => "indeterminate",
            Self::InsufficientLease => "insufficient_lease",
            Self::NotHeld => "not_held",
            Self::ReleaseUnconfirmed => "release_unconfirmed",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::WrongDomain => "wrong_domain",
            Self::InvalidInput => "invalid_input",
            Self::ClientCapacity => "client_capacity",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a request did not end as asked.
///
/// [`kind`](TicketError::kind) is what code should look at. The text, and the
/// chain of [`source`](StdError::source)s behind it, say what happened where.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use ticketing::{ErrorKind, TicketBroker};
///
/// let broker = TicketBroker::connect(["127.0.0.1:5225"])?;
/// let second = Duration::from_secs(1);
/// let error = broker.acquire("two words", second, second).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// # broker.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TicketError(Box<Inner>);

struct Inner {
    cause: Cause,
    key: Option<Arc<str>>,
    owner: Option<u64>,
    token: Option<u64>,
}

/// What happened, in detail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("the wait ran out before its turn came")]
    Timeout,
    #[error("the server turned the acquire down: it is at a limit, or does not lead now; try again later")]
    Busy,
    #[error("there was no usable connection in time; nothing was sent")]
    NotConnected(#[source] Option<Arc<At<Trouble>>>),
    #[error(
        "the acquire was sent, but no answer came: its outcome is unknown, so the critical section is off limits; \
         verify can clear it up, and the lease ends it in any case"
    )]
    Indeterminate {
        #[source]
        why: Option<Arc<At<Trouble>>>,
        uncertain: Box<Uncertain>,
    },
    #[error(
        "the grant came with {} of its lease left, less than the {} that were asked for; it was released",
        secs(.left), secs(.wanted)
    )]
    InsufficientLease { left: Duration, wanted: Duration },
    #[error("the lock is not held under that token: its lease ran out, or it was released before{}",
        if *.sent_before { " (perhaps by this call: an earlier try lost its answer)" } else { "" })]
    NotHeld { sent_before: bool },
    #[error("the release was not confirmed within 5 s; the lease will end the lock")]
    ReleaseUnconfirmed(#[source] Option<Arc<At<Trouble>>>),
    #[error("no server accepts this client")]
    Refused(#[source] Arc<At<Trouble>>),
    #[error("TLS cannot be set up")]
    BadTls(#[source] BadTls),
    #[error("{0}")]
    Invalid(Invalid),
    #[error("{0} requests are pending already, as many as this client allows")]
    ClientCapacity(usize),
    #[error("the broker is closed")]
    Closed,
    #[error("the server does not speak extension 1 of the protocol, which this needs")]
    Unsupported,
}

/// Which rule an argument breaks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("{0}")]
    Key(InvalidKey),
    #[error("a lease of {}; it must be {} s to {} s", secs(.0), LEASE_SECS.start(), LEASE_SECS.end())]
    Lease(Duration),
    #[error("a wait of {}; it must be at most {MAX_WAIT_SECS} s", secs(.0))]
    Wait(Duration),
    #[error(
        "{} of a lease of {} can never be left at its grant: less than {} is",
        secs(.min_remaining), secs(.lease), secs(.most)
    )]
    MinRemaining { min_remaining: Duration, lease: Duration, most: Duration },
    #[error("{0}")]
    Address(BadAddress),
    #[error("no address was given; name at least one server as host:port")]
    NoAddress,
    #[error("at most 0 pending requests: nothing could ever be sent")]
    MaxPending,
    #[error("a broker must be built inside a tokio runtime (the blocking client brings its own)")]
    NoRuntime,
    #[error("the thread of the blocking client cannot be started: {0}")]
    NoThread(std::io::Error),
    #[error("only an indeterminate acquire can be verified, and this one is {0}")]
    NotIndeterminate(ErrorKind),
    #[error("this acquire was verified before, and its ticket was handed out then")]
    VerifiedBefore,
    #[error("this acquire has told its outcome before; begin another one")]
    OverBefore,
}

impl Cause {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout => ErrorKind::Timeout,
            Self::Busy => ErrorKind::Busy,
            Self::NotConnected(_) => ErrorKind::NotConnected,
            Self::Indeterminate { .. } => ErrorKind::Indeterminate,
            Self::InsufficientLease { .. } => ErrorKind::InsufficientLease,
            Self::NotHeld { .. } => ErrorKind::NotHeld,
            Self::ReleaseUnconfirmed(_) => ErrorKind::ReleaseUnconfirmed,
            Self::Refused(trouble) => trouble.what.configuration().unwrap_or(ErrorKind::NotConnected),
            Self::BadTls(_) => ErrorKind::Tls,
            Self::Invalid(_) => ErrorKind::InvalidInput,
            Self::ClientCapacity(_) => ErrorKind::ClientCapacity,
            Self::Closed => ErrorKind::Closed,
            Self::Unsupported => ErrorKind::Unsupported,
        }
    }

    /// The error of an acquire.
    pub(crate) fn about_acquire(self, key: &Arc<str>, owner: u64) -> TicketError {
        let key = Some(Arc::clone(key));
        TicketError(Box::new(Inner { cause: self, key, owner: Some(owner), token: None }))
    }

    /// The error of a release.
    pub(crate) fn about_release(self, key: &Arc<str>, token: u64) -> TicketError {
        let key = Some(Arc::clone(key));
        TicketError(Box::new(Inner { cause: self, key, owner: None, token: Some(token) }))
    }
}

impl From<Cause> for TicketError {
    fn from(cause: Cause) -> Self {
        Self(Box::new(Inner { cause, key: None, owner: None, token: None }))
    }
}

impl From<Invalid> for TicketError {
    fn from(invalid: Invalid) -> Self {
        Cause::Invalid(invalid).into()
    }
}

/// A question for each kind.
macro_rules! predicates {
    ($($name:ident: $kind:ident,)*) => { $(
        #[doc = concat!("Whether it is [`ErrorKind::", stringify!($kind), "`].")]
        #[must_use]
        pub fn $name(&self) -> bool {
            self.kind() == ErrorKind::$kind
        }
    )* };
}

impl TicketError {
    /// What went wrong, as far as a caller's next step depends on it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.cause.kind()
    }

    /// The key that was asked for, if it was a legal one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The owner number of the acquire, as the server knows it.
    #[must_use]
    pub fn owner(&self) -> Option<u64> {
        self.0.owner
    }

    /// The fencing token that a release named.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.0.token
    }

    predicates! {
        is_timeout: Timeout,
        is_busy: Busy,
        is_not_connected: NotConnected,
        is_indeterminate: Indeterminate,
        is_insufficient_lease: InsufficientLease,
        is_not_held: NotHeld,
        is_release_unconfirmed: ReleaseUnconfirmed,
        is_auth: Auth,
        is_tls: Tls,
        is_wrong_domain: WrongDomain,
        is_invalid_input: InvalidInput,
        is_client_capacity: ClientCapacity,
        is_closed: Closed,
        is_unsupported: Unsupported,
    }

    /// Whether a release that ended as [`NotHeld`](ErrorKind::NotHeld) may itself
    /// have ended the lock: an earlier try of it was sent and lost its answer.
    ///
    /// The lock is over in either case. Without an earlier try it ended before this
    /// release, most likely with its lease, and whatever was done under it since
    /// then was not protected; with one, that need not be so.
    #[must_use]
    pub const fn may_have_released(&self) -> bool {
        matches!(self.0.cause, Cause::NotHeld { sent_before: true })
    }

    /// Clears an [`Indeterminate`](ErrorKind::Indeterminate) acquire up: the
    /// lock is held after all, or it was not acquired and never will be.
    ///
    /// Asks the leading server for up to `timeout`; protocol extension 1. A
    /// ticket that comes of it ends by the lease of the original acquire.
    ///
    /// # Errors
    /// [`Indeterminate`](ErrorKind::Indeterminate) again, while nobody could
    /// say; this error can still be asked again. Otherwise `InsufficientLease`,
    /// `Unsupported`, `ClientCapacity`, `Closed`, and `InvalidInput` where
    /// there is nothing to clear up.
    pub async fn verify(&self, timeout: Duration) -> Result<Verdict, Self> {
        let Cause::Indeterminate { uncertain, .. } = &self.0.cause else {
            return Err(Invalid::NotIndeterminate(self.kind()).into());
        };
        uncertain.verify(timeout).await
    }
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = self.key() {
            write!(f, "lock {key:?}: ")?;
        }
        self.0.cause.fmt(f)
    }
}

impl fmt::Debug for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketError")
            .field("kind", &self.kind())
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("token", &self.token())
            .field("cause", &chain(&self.0.cause))
            .finish()
    }
}

impl StdError for TicketError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.source()
    }
}

/// A duration as people write it, to the millisecond.
fn secs(duration: &Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    format!("{} s", millis.round() / 1000.0)
}

/// An error with all its sources, in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
