//! What went wrong, on its way to an exception.
//!
//! The exceptions are classes of Python. Here they have only their names, so
//! that a kind without a class does not compile.

use std::error::Error as _;
use std::sync::Arc;

use pyo3::prelude::*;
use ticketing::{ErrorKind, TicketError};

use crate::call::{Call, Home};
use crate::inbox::Inbox;
use crate::process::Own;
use crate::seconds;

/// What the binding refuses by itself, since it never gets as far as the core.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A value that the types of the core cannot hold.
    Invalid(String),
    /// The broker belongs to another process.
    Forked,
    /// The broker was closed under the request.
    Closed,
    /// The ticket was released or detached before.
    Gone { key: String, token: u64 },
    /// There is no acquire under way whose place could be asked for.
    NotWaiting,
}

impl Refusal {
    const fn class(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::NotWaiting => class(ErrorKind::InvalidInput),
            Self::Forked => "TicketForked",
            Self::Closed => class(ErrorKind::Closed),
            Self::Gone { .. } => class(ErrorKind::NotHeld),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Invalid(message) => message.clone(),
            Self::Forked => {
                "this broker belongs to the parent process: a fork does not inherit its connections; \
                             make a new TicketBroker in each child"
                    .to_owned()
            }
            Self::Closed => "the broker is closed".to_owned(),
            Self::Gone { key, .. } => format!("lock {key:?}: this ticket was released or detached before"),
            Self::NotWaiting => "only an acquire that has begun has a place in a queue".to_owned(),
        }
    }
}

/// The name of the exception class of each kind.
const fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Timeout => "TicketTimeout",
        ErrorKind::Busy => "TicketBusy",
        ErrorKind::NotConnected => "TicketNotConnected",
        ErrorKind::Indeterminate => "TicketIndeterminate",
        ErrorKind::InsufficientLease => "TicketInsufficientLease",
        ErrorKind::NotHeld => "TicketNotHeld",
        ErrorKind::ReleaseUnconfirmed => "TicketReleaseUnconfirmed",
        ErrorKind::Auth => "TicketAuthError",
        ErrorKind::Tls => "TicketTlsError",
        ErrorKind::WrongDomain => "TicketWrongDomain",
        ErrorKind::InvalidInput => "TicketInvalidInput",
        ErrorKind::ClientCapacity => "TicketClientCapacity",
        ErrorKind::Closed => "TicketClosed",
        ErrorKind::Unsupported => "TicketUnsupported",
    }
}

/// Each kind by its shared name, and the name of its exception class.
pub(crate) fn kinds() -> Vec<(&'static str, &'static str)> {
    ErrorKind::ALL.iter().map(|kind| (kind.as_str(), class(*kind))).collect()
}

/// What went wrong: the data of an exception.
#[pyclass(frozen, module = "ticketing._ticketing")]
pub(crate) struct Failure {
    #[pyo3(get)]
    class_name: &'static str,
    #[pyo3(get)]
    message: String,
    #[pyo3(get)]
    key: Option<String>,
    #[pyo3(get)]
    owner: Option<u64>,
    #[pyo3(get)]
    token: Option<u64>,
    /// What can be asked how it stands, if it is uncertain.
    uncertain: Option<(Home, Own<Arc<TicketError>>)>,
}

impl Failure {
    /// An error of the core, with all its causes in one line.
    pub(crate) fn told(home: &Home, error: TicketError) -> Self {
        let mut failure = Self::from_start(&error);
        if error.is_indeterminate() {
            failure.uncertain = Some((Arc::clone(home), Own::new(Arc::new(error))));
        }
        failure
    }

    /// An error that no broker came of.
    pub(crate) fn from_start(error: &TicketError) -> Self {
        let mut message = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            message += &format!(": {cause}");
            next = cause.source();
        }
        Self {
            class_name: class(error.kind()),
            message,
            key: error.key().map(str::to_owned),
            owner: error.owner(),
            token: error.token(),
            uncertain: None,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (class_name, message) = (refusal.class(), refusal.message());
        let (key, token) = match refusal {
            Refusal::Gone { key, token } => (Some(key), Some(token)),
            Refusal::Invalid(_) | Refusal::Forked | Refusal::Closed | Refusal::NotWaiting => (None, None),
        };
        Self { class_name, message, key, owner: None, token, uncertain: None }
    }
}

#[pymethods]
impl Failure {
    /// Clears an uncertain acquire up: a `Held`, or `None` if it never will be
    /// one. `None` in place of the call: there is nothing uncertain.
    fn verify(
        &self,
        inbox: Option<&Bound<'_, Inbox>>,
        number: u64,
        timeout: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Call>> {
        let Some((home, error)) = &self.uncertain else { return Ok(None) };
        let timeout = seconds::read("timeout", timeout)?;
        let request = match error.get().map(Arc::clone) {
            None => Err(Refusal::Forked),
            Some(error) => timeout.map(|timeout| async move { error.verify(timeout).await }),
        };
        Ok(Some(Call::start(home, inbox.map(Bound::get), number, request)))
    }
}
