//! The broker, and the calls that are under way.

use std::future::Future;
use std::sync::Arc;

use napi::bindgen_prelude::{Array, BigInt, Either, Env, External, Function};
use napi_derive::napi;
use ticketing::embed::{Embedded, Submission};
use ticketing::{AcquireOptions, ConnectionStatus, Placement, Ticket};

use crate::ended::Ended;
use crate::failure::{Failure, Uncertain};
use crate::outcome::Outcome;
use crate::settings::{Settings, duration};
use crate::ticket::Held;

/// A broker with the thread on which its connections live.
///
/// Every request has a number, chosen by JavaScript, under which its outcome
/// will be among those that [`take`](Core::take) returns.
#[napi]
pub struct Core {
    embedded: Embedded,
    ended: Arc<Ended>,
}

/// An acquire under way. Finalized before its end, which happens only together
/// with its environment, it is cancelled.
pub struct Call {
    submission: Submission,
    placement: Placement,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.submission.cancel();
    }
}

/// Starts a broker, which connects in the background. `deliver` is called when
/// there is something to take.
#[napi(catch_unwind)]
#[allow(clippy::needless_pass_by_value, reason = "as arguments of JavaScript come")]
pub fn start(settings: Settings, deliver: Function<'_, (), ()>) -> napi::Result<Either<Core, Failure>> {
    let builder = match settings.into_builder() {
        Ok(builder) => builder,
        Err(failure) => return Ok(Either::B(failure)),
    };
    let ended = Arc::new(Ended::new(&deliver)?);
    Ok(match Embedded::start(builder) {
        Ok(embedded) => Either::A(Core { embedded, ended }),
        Err(error) => Either::B(error.into()),
    })
}

#[napi]
impl Core {
    /// Acquires a lock. Times are in seconds.
    #[napi(catch_unwind)]
    pub fn acquire(
        &self,
        number: u32,
        key: String,
        wait: f64,
        lease: f64,
        min_remaining: Option<f64>,
    ) -> External<Call> {
        let options = AcquireOptions {
            wait: duration(wait),
            lease: duration(lease),
            min_remaining: min_remaining.map(duration),
        };
        let acquire = self.embedded.broker().acquire_with(&key, options);
        let placement = acquire.placement();
        External::new(Call { submission: self.submit(number, acquire), placement })
    }

    /// Cancels an acquire; its outcome comes all the same.
    #[napi(catch_unwind)]
    pub fn cancel(&self, call: &External<Call>) {
        call.submission.cancel();
    }

    /// Asks for the place of an acquire in its queue.
    #[napi(catch_unwind)]
    pub fn place(&self, number: u32, call: &External<Call>) {
        let placement = call.placement.clone();
        self.submit(number, async move { placement.place().await });
    }

    /// Releases a ticket; false if there is none any more.
    #[napi(catch_unwind)]
    pub fn release(&self, number: u32, held: &External<Held>) -> bool {
        let ticket = held.take();
        ticket.map(Ticket::release).map(|release| self.submit(number, release)).is_some()
    }

    /// Releases by key and token; false if that is no 64-bit number.
    #[napi(catch_unwind)]
    pub fn release_token(&self, number: u32, key: String, token: BigInt) -> bool {
        let (_, token, true) = token.get_u64() else { return false };
        let broker = self.embedded.broker().clone();
        self.submit(number, async move { broker.release(&key, token).await });
        true
    }

    /// Clears an uncertain acquire up: a ticket, or nothing.
    #[napi(catch_unwind)]
    pub fn verify(&self, number: u32, uncertain: &External<Uncertain>, timeout: f64) {
        let (error, timeout) = (Arc::clone(uncertain), duration(timeout));
        self.submit(number, async move { error.verify(timeout).await });
    }

    /// Waits until a session is open.
    #[napi(catch_unwind)]
    pub fn wait_ready(&self, number: u32, timeout: f64) {
        let (broker, timeout) = (self.embedded.broker().clone(), duration(timeout));
        self.submit(number, async move { broker.wait_ready(timeout).await });
    }

    /// Ends the broker in order.
    #[napi(catch_unwind)]
    pub fn close(&self, number: u32) {
        let broker = self.embedded.broker().clone();
        self.submit(number, async move {
            broker.close().await;
            Ok(())
        });
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
        for (at, (number, outcome)) in (0..).step_by(3).zip(ended) {
            batch.set(at, number)?;
            outcome.write(env, &mut batch, at + 1)?;
        }
        Ok(batch)
    }
}

impl Core {
    pub(crate) fn submit<F>(&self, number: u32, future: F) -> Submission
    where
        F: Future<Output: Into<Outcome> + Send> + Send + 'static,
    {
        let ended = Arc::clone(&self.ended);
        self.embedded.submit(future, move |outcome| {
            ended.push(number, outcome.map_or_else(Outcome::of_nothing, Into::into));
        })
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
