//! The broker, and the calls that are under way.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use napi::bindgen_prelude::{Array, BigInt, Either, Env, External, Function};
use napi_derive::napi;
use slab::Slab;
use ticketing::embed::{Embedded, Submission};
use ticketing::{AcquireOptions, ConnectionStatus, Placement, TicketError};

use crate::ended::Ended;
use crate::failure::{Failure, Uncertain};
use crate::outcome::Outcome;
use crate::settings::{Settings, duration};
use crate::ticket::Held;

/// A broker with the thread on which its connections live.
///
/// Every request has a number, under which its outcome will be among those that
/// [`take`](Core::take) returns. It begins with the next [`flush`](Core::flush):
/// JavaScript makes many in one turn, and to wake the broker's thread costs a
/// system call.
#[napi]
pub struct Core {
    embedded: Embedded,
    ended: Arc<Ended>,
    /// By their numbers; touched by the thread of JavaScript alone.
    calls: RefCell<Slab<Call>>,
}

/// A call under way.
struct Call {
    submission: Submission,
    /// Of an acquire.
    placement: Option<Placement>,
}

impl Drop for Core {
    /// With calls under way this happens only together with the environment. Nobody
    /// waits for a lock any more; a release goes on.
    fn drop(&mut self) {
        for (_, call) in self.calls.get_mut().iter() {
            if call.placement.is_some() {
                call.submission.cancel();
            }
        }
        self.embedded.flush();
    }
}

/// Starts a broker, which connects in the background. `deliver` is called when
/// there is something to take.
#[napi(catch_unwind)]
pub fn start(settings: Settings, deliver: Function<'_, (), ()>) -> napi::Result<Either<Core, Failure>> {
    let builder = match settings.into_builder() {
        Ok(builder) => builder,
        Err(failure) => return Ok(Either::B(*failure)),
    };
    let ended = Arc::new(Ended::new(&deliver)?);
    Ok(match Embedded::start(builder) {
        Ok(embedded) => Either::A(Core { embedded, ended, calls: RefCell::default() }),
        Err(error) => Either::B(error.into()),
    })
}

#[napi]
impl Core {
    /// Acquires a lock. Times are in seconds.
    #[napi(catch_unwind)]
    pub fn acquire(&self, key: String, wait: f64, lease: f64, min_remaining: Option<f64>) -> u32 {
        let options = AcquireOptions {
            wait: duration(wait),
            lease: duration(lease),
            min_remaining: min_remaining.map(duration),
        };
        let acquire = self.embedded.broker().acquire_with(&key, options);
        let placement = acquire.placement();
        self.submit(acquire, Some(placement))
    }

    /// Cancels a call; its outcome comes all the same.
    #[napi(catch_unwind)]
    pub fn cancel(&self, number: u32) {
        if let Some(call) = self.calls.borrow().get(number as usize) {
            call.submission.cancel();
        }
    }

    /// Asks for the place of an acquire in its queue; of none, if there is no number
    /// or that call is over.
    #[napi(catch_unwind)]
    pub fn place(&self, key: String, number: Option<u32>) -> u32 {
        let waiting = number.and_then(|number| self.calls.borrow().get(number as usize)?.placement.clone());
        let placement = waiting.unwrap_or_else(|| {
            // One that never begins: it is not in the queue either.
            self.embedded.broker().acquire_with(&key, AcquireOptions::default()).placement()
        });
        self.submit(async move { placement.place().await }, None)
    }

    /// Releases a ticket; nothing if there is none any more.
    #[napi(catch_unwind)]
    pub fn release(&self, held: &External<Held>) -> Option<u32> {
        let ticket = held.take()?;
        Some(self.submit(ticket.release(), None))
    }

    /// Releases by key and token; nothing if that is no 64-bit number.
    #[napi(catch_unwind)]
    pub fn release_token(&self, key: String, token: BigInt) -> Option<u32> {
        let (_, token, true) = token.get_u64() else { return None };
        let broker = self.embedded.broker().clone();
        Some(self.submit(async move { broker.release(&key, token).await }, None))
    }

    /// Clears an uncertain acquire up: a ticket, or nothing.
    #[napi(catch_unwind)]
    pub fn verify(&self, uncertain: &External<Uncertain>, timeout: f64) -> u32 {
        let (error, timeout) = (Arc::clone(uncertain), duration(timeout));
        self.submit(async move { error.verify(timeout).await }, None)
    }

    /// Waits until a session is open.
    #[napi(catch_unwind)]
    pub fn wait_ready(&self, timeout: f64) -> u32 {
        let (broker, timeout) = (self.embedded.broker().clone(), duration(timeout));
        self.submit(async move { broker.wait_ready(timeout).await }, None)
    }

    /// Ends the broker in order.
    #[napi(catch_unwind)]
    pub fn close(&self) -> u32 {
        let broker = self.embedded.broker().clone();
        let closing = async move {
            broker.close().await;
            Ok::<(), TicketError>(())
        };
        self.submit(closing, None)
    }

    /// Begins the calls that were made.
    #[napi(catch_unwind)]
    pub fn flush(&self) {
        self.embedded.flush();
    }

    /// How the connections stand.
    #[napi(catch_unwind)]
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.embedded.broker().connections().into_iter().map(Connection::from).collect()
    }

    /// Whether the process must go on for what is still to come.
    #[napi(catch_unwind)]
    pub fn keep_alive(&self, env: &Env, alive: bool) -> napi::Result<()> {
        self.ended.keep_alive(env, alive)
    }

    /// What has ended: for each call its number, its failure, its value.
    #[napi(catch_unwind)]
    pub fn take<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let ended = self.ended.take();
        let mut batch = env.create_array(0)?;
        let mut calls = self.calls.borrow_mut();
        for (at, (number, outcome)) in (0..).step_by(3).zip(ended) {
            calls.try_remove(number as usize);
            batch.set(at, number)?;
            outcome.write(env, &mut batch, at + 1)?;
        }
        Ok(batch)
    }
}

impl Core {
    pub(crate) fn submit<F>(&self, future: F, placement: Option<Placement>) -> u32
    where
        F: Future<Output: Into<Outcome> + Send> + Send + 'static,
    {
        let mut calls = self.calls.borrow_mut();
        let entry = calls.vacant_entry();
        #[allow(clippy::cast_possible_truncation, reason = "fewer calls than that fit into memory")]
        let number = entry.key() as u32;
        let ended = Arc::clone(&self.ended);
        let submission = self.embedded.submit_later(future, move |outcome| {
            ended.push(number, outcome.map_or_else(Outcome::of_nothing, Into::into));
        });
        entry.insert(Call { submission, placement });
        number
    }
}

/// How one connection stands.
#[napi(object, object_from_js = false)]
pub struct Connection {
    /// The configured address.
    pub address: String,
    /// Whether a session is open.
    pub open: bool,
    /// The server's fencing domain.
    pub domain: Option<String>,
    /// The server's node id.
    pub node: Option<u64>,
    /// Whether that node leads.
    pub leads: Option<bool>,
    /// Whether protocol extension 1 is spoken.
    pub extension: bool,
    /// Why there is no session.
    pub last_error: Option<String>,
}

impl From<ConnectionStatus> for Connection {
    fn from(status: ConnectionStatus) -> Self {
        let ConnectionStatus { address, open, domain, node, leads, extension, last_error } = status;
        let domain = domain.map(|domain| domain.to_string());
        Self { address, open, domain, node, leads, extension, last_error }
    }
}
