//! Why a call did not end as asked.

use std::error::Error as _;
use std::ffi::c_int;
use std::sync::{Arc, Weak};

use ticketing::TicketError;
use ticketing::embed::Embedded;

use crate::status::{self, TICKETING_INVALID_INPUT, TICKETING_NULL_ARGUMENT, TICKETING_PANIC};

pub(crate) struct Failure {
    pub(crate) status: c_int,
    pub(crate) message: String,
    /// What the client core said, if it did.
    pub(crate) about: Option<About>,
}

/// An error of the client core, and whose it is. It keeps no broker alive.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) error: Arc<TicketError>,
    pub(crate) broker: Weak<Embedded>,
}

impl Failure {
    pub(crate) fn new(status: c_int, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), about: None }
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(TICKETING_NULL_ARGUMENT, format!("{name} is NULL or zero"))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(TICKETING_INVALID_INPUT, message)
    }

    pub(crate) fn panicked() -> Self {
        Self::new(
            TICKETING_PANIC,
            "the ticketing library panicked in this call, which is a mistake in it; if it was an acquire, its outcome is unknown",
        )
    }

    /// What `broker` said.
    pub(crate) fn told(error: TicketError, broker: &Arc<Embedded>) -> Self {
        let about = About { error: Arc::new(error), broker: Arc::downgrade(broker) };
        Self { status: status::of(about.error.kind()), message: chain(&about.error), about: Some(about) }
    }
}

/// Of a broker that could not be opened.
impl From<TicketError> for Failure {
    fn from(error: TicketError) -> Self {
        Self::new(status::of(error.kind()), chain(&error))
    }
}

/// The text of an error and of each cause.
fn chain(error: &TicketError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}
