//! Everything that can go wrong with a connection, in detail, for people.

use std::fmt;
use std::io;
use std::sync::Arc;

use ticketing_protocol::handshake::{BadHandshake, Domain};
use ticketing_protocol::{Malformed, Reason};

use crate::ErrorKind;

/// Why a connection could not be opened, or ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "what each one means is what it says")]
pub enum Trouble {
    #[error("the name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("no {0} within 5 s")]
    Late(Stage),
    #[error("no {0} so far")]
    NotYet(Stage),
    #[error("the server closed the connection before its {0}")]
    ClosedBefore(Stage),
    #[error(
        "TLS failed; is the certificate signed by a trusted CA, for this name, and does that port speak TLS?"
    )]
    Tls(#[source] io::Error),
    #[error("the handshake makes no sense")]
    Handshake(#[source] BadHandshake),
    #[error("the server refused the token; does the client have the server's current one?")]
    AuthFailed,
    #[error("the server belongs to the fencing domain {found}, expected was {expected}")]
    WrongDomain { expected: Domain, found: DomainText },
    #[error("the server ended the connection: {0}")]
    Refused(Box<str>),
    #[error("the server closed the connection")]
    Closed,
    #[error("reading or writing failed")]
    Io(#[source] io::Error),
    #[error("the server broke the protocol")]
    Malformed(#[source] Malformed),
    #[error("the server answered a request that is not pending ({0})")]
    Unbound(&'static str),
    #[error("no byte came for 6 s while requests were pending")]
    Silent,
    #[error("the server took no byte for 5 s")]
    Stuck,
    #[error("no answer came in time")]
    Overdue,
    #[error("it says that {0} leads; is there an open connection to that one?")]
    Elsewhere(Box<str>),
    #[error("the broker was closed")]
    Stopped,
    #[error("the runtime of the broker ended")]
    RuntimeGone,
}

/// How far a connection had come.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    Connection,
    Tls,
    Greeting,
    FirstFrame,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Tls => "TLS handshake",
            Self::Greeting => "greeting (does that port want TLS?)",
            Self::FirstFrame => "first frame",
        })
    }
}

/// The domain that a server named, or none.
#[derive(Clone, Copy, Debug)]
pub struct DomainText(Option<Domain>);

impl From<Option<Domain>> for DomainText {
    fn from(domain: Option<Domain>) -> Self {
        Self(domain)
    }
}

impl fmt::Display for DomainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(domain) => domain.fmt(f),
            None => f.write_str("(none named)"),
        }
    }
}

impl Trouble {
    /// What the text of an `E` frame means for us.
    pub(crate) fn refused(reason: &str) -> Self {
        match Reason::parse(reason) {
            Some(Reason::AuthFailed) => Self::AuthFailed,
            Some(_) | None => Self::Refused(reason.into()),
        }
    }

    /// The kind of an error of configuration: no retry heals it, a person must.
    pub(crate) const fn configuration(&self) -> Option<ErrorKind> {
        match self {
            Self::AuthFailed => Some(ErrorKind::Auth),
            Self::Tls(_) => Some(ErrorKind::Tls),
            Self::WrongDomain { .. } => Some(ErrorKind::WrongDomain),
            Self::Resolve(_)
            | Self::NoAddress
            | Self::Connect(_)
            | Self::Late(_)
            | Self::NotYet(_)
            | Self::ClosedBefore(_)
            | Self::Handshake(_)
            | Self::Refused(_)
            | Self::Closed
            | Self::Io(_)
            | Self::Malformed(_)
            | Self::Unbound(_)
            | Self::Silent
            | Self::Stuck
            | Self::Overdue
            | Self::Elsewhere(_)
            | Self::Stopped
            | Self::RuntimeGone => None,
        }
    }
}

/// Something with the address of the server that it is about.
#[derive(Debug)]
pub struct At<T> {
    /// As it was configured.
    pub address: Arc<str>,
    /// What there is to say about it.
    pub what: T,
}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.what)
    }
}

impl<T: std::error::Error> std::error::Error for At<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.what.source()
    }
}
