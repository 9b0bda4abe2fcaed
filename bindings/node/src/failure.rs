//! What went wrong, as the data of an error of JavaScript.

use std::error::Error as _;
use std::sync::Arc;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use ticketing::{ErrorKind, TicketError};

/// What JavaScript makes an error of.
#[napi(object, object_from_js = false)]
pub struct Failure {
    /// The shared name of the kind; `panic` for what is none.
    pub code: &'static str,
    /// The text and that of each cause, in one line.
    pub message: String,
    /// The lock that was asked for.
    pub key: Option<String>,
    /// The owner number of the acquire.
    pub owner: Option<u64>,
    /// The fencing token that a release named.
    pub token: Option<u64>,
    /// What can be asked how it stands, where that is uncertain.
    pub uncertain: Option<External<Uncertain>>,
}

/// An error that can be verified.
pub type Uncertain = Arc<TicketError>;

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), key: None, owner: None, token: None, uncertain: None }
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed.as_str(), "the broker is closed")
    }

    pub(crate) fn panicked() -> Self {
        Self::new(
            "panic",
            "the client panicked in this call: a mistake in this library; if it was an acquire, its outcome is unknown",
        )
    }
}

impl From<TicketError> for Failure {
    fn from(error: TicketError) -> Self {
        let mut message = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            message += &format!(": {cause}");
            next = cause.source();
        }
        Self {
            key: error.key().map(str::to_owned),
            owner: error.owner(),
            token: error.token(),
            ..Self::new(error.kind().as_str(), message)
        }
        .verifiable(error)
    }
}

impl Failure {
    fn verifiable(self, error: TicketError) -> Self {
        let uncertain = error.is_indeterminate().then(|| External::new(Arc::new(error)));
        Self { uncertain, ..self }
    }
}
