//! A lock that is held, in the hand of JavaScript.

use std::cell::RefCell;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use ticketing::{Domain, Grant, Ticket};

/// A ticket, until somebody takes it. Collected with it inside, it is given back.
pub struct Held {
    token: u64,
    owner: u64,
    domain: Option<Domain>,
    ticket: RefCell<Option<Ticket>>,
}

impl Held {
    pub(crate) fn new(ticket: Ticket) -> Self {
        let (token, owner, domain) = (ticket.token(), ticket.owner(), ticket.domain());
        Self { token, owner, domain, ticket: RefCell::new(Some(ticket)) }
    }

    pub(crate) fn take(&self) -> Option<Ticket> {
        self.ticket.try_borrow_mut().ok()?.take()
    }
}

/// What a ticket says of itself, also when it is over.
#[napi(object, object_from_js = false)]
pub struct Facts {
    /// The fencing token.
    pub token: u64,
    /// The owner number of the acquire.
    pub owner: u64,
    /// The fencing domain: 32 hexadecimal digits.
    pub domain: Option<String>,
}

/// What a ticket says of itself, also when it is over.
#[napi(catch_unwind)]
#[must_use]
pub fn facts(held: &External<Held>) -> Facts {
    Facts { token: held.token, owner: held.owner, domain: held.domain.map(|domain| domain.to_string()) }
}

/// Seconds that are surely left of the lease.
#[napi(catch_unwind)]
#[must_use]
pub fn remaining(held: &External<Held>) -> f64 {
    let ticket = held.ticket.try_borrow();
    ticket.ok().and_then(|ticket| Some(ticket.as_ref()?.remaining().as_secs_f64())).unwrap_or(0.0)
}

/// Takes the duty to release it away; what is left of the lease, in seconds.
#[napi(catch_unwind)]
#[must_use]
pub fn detach(held: &External<Held>) -> Option<f64> {
    let Grant { remaining, .. } = held.take()?.detach();
    Some(remaining.as_secs_f64())
}

/// Gives it back in the background.
#[napi(catch_unwind)]
pub fn give_back(held: &External<Held>) {
    drop(held.take());
}
