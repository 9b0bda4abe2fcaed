//! A lock that is held.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use ticketing::{Grant, Ticket};

use crate::call::{Call, Home};
use crate::failure::Refusal;
use crate::inbox::Inbox;
use crate::process::Own;

/// The core's ticket. Collected before it was released, it is given back; in a
/// fork it is forgotten, for it is the parent's.
#[pyclass(frozen, module = "ticketing._ticketing")]
pub(crate) struct Held {
    #[pyo3(get)]
    key: String,
    #[pyo3(get)]
    token: u64,
    #[pyo3(get)]
    owner: u64,
    #[pyo3(get)]
    domain: Option<String>,
    ticket: Own<Mutex<Option<Ticket>>>,
    home: Home,
}

impl Held {
    pub(crate) fn new(home: Home, ticket: Ticket) -> Self {
        Self {
            key: ticket.key().to_owned(),
            token: ticket.token(),
            owner: ticket.owner(),
            domain: ticket.domain().map(|domain| domain.to_string()),
            ticket: Own::new(Mutex::new(Some(ticket))),
            home,
        }
    }

    fn ticket(&self) -> Option<MutexGuard<'_, Option<Ticket>>> {
        Some(self.ticket.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl Held {
    /// Whether it is still to be released, here.
    fn is_here(&self) -> bool {
        self.ticket().is_some_and(|ticket| ticket.is_some())
    }

    /// Seconds that are surely left of the lease; 0 if nothing is, or if this
    /// is no longer the one to release it.
    fn remaining(&self) -> f64 {
        self.ticket().and_then(|ticket| Some(ticket.as_ref()?.remaining().as_secs_f64())).unwrap_or(0.0)
    }

    /// Gives the lock back.
    fn release(&self, inbox: Option<&Bound<'_, Inbox>>, number: u64) -> Call {
        let ticket = self.ticket().and_then(|mut ticket| ticket.take());
        let release = ticket.map(Ticket::release);
        let gone = || Refusal::Gone { key: self.key.clone(), token: self.token };
        Call::start(&self.home, inbox.map(Bound::get), number, release.ok_or_else(gone))
    }

    /// Gives the lock back in the background, as collecting it does, but at once.
    fn let_go(&self) {
        let ticket = self.ticket().and_then(|mut ticket| ticket.take());
        drop(ticket);
    }

    /// Leaves the lock to whoever has its key and token: what is left of its
    /// lease in seconds. `None`: it is no longer here.
    fn detach(&self) -> Option<f64> {
        let ticket = self.ticket().and_then(|mut ticket| ticket.take())?;
        let Grant { remaining, .. } = ticket.detach();
        Some(remaining.as_secs_f64())
    }
}
