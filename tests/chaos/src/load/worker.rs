//! One task that wants locks, one after the other.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing::{Acquire, ErrorKind, Placement, Ticket, TicketBroker, TicketError, Verdict};
use ticketing_history::{Call, Nanos, Op, Outcome, Returned};

use super::{Load, Shared};
use crate::now;

/// How long a verify is tried.
const VERIFY: Duration = Duration::from_secs(5);

/// The operations of one client.
#[derive(Clone, Debug)]
pub(super) struct Record {
    process: u64,
    ops: Arc<Mutex<Vec<Op>>>,
}

impl Record {
    pub(super) fn new(process: u64) -> Self {
        Self { process, ops: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Op>> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invoke(&self, key: &str, call: Call) -> usize {
        let mut ops = self.lock();
        let id = self.process << 32 | ops.len() as u64;
        let key = key.to_owned();
        ops.push(Op { id, process: self.process, lane: None, key, call, invoked: now(), returned: None });
        ops.len() - 1
    }

    fn end(&self, op: usize, outcome: Outcome) {
        self.end_at(op, now(), outcome);
    }

    fn end_at(&self, op: usize, at: Nanos, outcome: Outcome) {
        if let Some(op) = self.lock().get_mut(op) {
            op.returned = Some(Returned { at, outcome });
        }
    }

    fn id(&self, op: usize) -> u64 {
        self.process << 32 | op as u64
    }

    fn seen_in_queue(&self, op: usize) {
        if let Some(Op { call: Call::Acquire { queued, .. }, .. }) = self.lock().get_mut(op) {
            queued.get_or_insert(now());
        }
    }

    pub(super) fn into_ops(self) -> Vec<Op> {
        std::mem::take(&mut self.lock())
    }
}

pub(super) struct Worker {
    load: Load,
    random: StdRng,
    broker: TicketBroker,
    shared: Arc<Shared>,
    record: Record,
}

impl Worker {
    pub(super) fn new(
        load: Load,
        seed: u64,
        broker: TicketBroker,
        shared: Arc<Shared>,
        record: Record,
    ) -> Self {
        Self { load, random: StdRng::seed_from_u64(seed), broker, shared, record }
    }

    pub(super) async fn work(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let key = format!("key-{}", self.random.random_range(0..self.load.keys));
            let wait_secs = self.load.waits[self.random.random_range(0..self.load.waits.len())];
            let lease_secs = self.load.leases[self.random.random_range(0..self.load.leases.len())];
            if let Some(ticket) = self.acquire(&key, wait_secs, lease_secs).await {
                self.hold(ticket, lease_secs).await;
            }
            let pause = self.up_to(self.load.pause);
            tokio::time::sleep(pause).await;
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.random.random())
    }

    async fn acquire(&mut self, key: &str, wait_secs: u8, lease_secs: u8) -> Option<Ticket> {
        let (wait, lease) = (Duration::from_secs(wait_secs.into()), Duration::from_secs(lease_secs.into()));
        let patience = if self.chance(self.load.give_up) { self.up_to(wait) } else { Duration::MAX };
        let curious = self.chance(self.load.place) && wait_secs > 0;
        let op = self.record.invoke(key, Call::acquire(wait_secs, lease_secs));
        let acquire = self.broker.acquire(key, wait, lease);
        let placement = curious.then(|| acquire.placement());
        let answer = tokio::time::timeout(patience, self.watched(op, acquire, placement)).await;
        let at = now();
        match answer {
            Err(_given_up) => {
                self.record.end_at(op, at, Outcome::GivenBack);
                None
            }
            Ok(Ok(ticket)) => {
                self.granted(op, at, &ticket);
                Some(ticket)
            }
            Ok(Err(error)) => {
                self.record.end_at(op, at, not_granted(error.kind()));
                let verifies = error.kind() == ErrorKind::Indeterminate && self.chance(self.load.verify);
                if verifies { self.verify(key, op, &error).await } else { None }
            }
        }
    }

    /// The acquire, and beside it the question for its place.
    async fn watched(
        &self,
        op: usize,
        acquire: Acquire,
        placement: Option<Placement>,
    ) -> Result<Ticket, TicketError> {
        let mut acquire = pin!(acquire);
        if let Some(placement) = placement {
            tokio::select! {
                biased;
                answer = &mut acquire => return answer,
                place = placement.place() => if place.is_ok_and(|place| place.place > 0) {
                    self.record.seen_in_queue(op);
                },
            }
        }
        acquire.await
    }

    fn granted(&self, op: usize, at: Nanos, ticket: &Ticket) {
        // The time first: what is left is counted from later than that.
        let ends = now() + u64::try_from(ticket.remaining().as_nanos()).expect("at most a lease");
        self.record.end_at(op, at, Outcome::Granted { token: ticket.token(), ends: Some(ends) });
        self.shared.granted.fetch_add(1, Ordering::Relaxed);
        self.shared.last_grant.fetch_max(at, Ordering::Relaxed);
    }

    async fn verify(&self, key: &str, of: usize, error: &TicketError) -> Option<Ticket> {
        let op = self.record.invoke(key, Call::Verify { of: self.record.id(of) });
        match error.verify(VERIFY).await {
            Ok(Verdict::Held(ticket)) => {
                self.granted(op, now(), &ticket);
                Some(ticket)
            }
            Ok(Verdict::NotAcquired) => {
                self.record.end(op, Outcome::NotAcquired);
                None
            }
            Err(_) => {
                self.record.end(op, Outcome::Indeterminate);
                None
            }
        }
    }

    async fn hold(&mut self, ticket: Ticket, lease_secs: u8) {
        let key = ticket.key().to_owned();
        let token = ticket.token();
        if self.chance(self.load.forget) {
            let _ = ticket.detach();
            return;
        }
        let mut time = self.up_to(self.load.hold);
        if self.chance(self.load.oversleep) {
            time += Duration::from_secs(lease_secs.into());
        }
        tokio::time::sleep(time).await;
        if self.chance(self.load.drop) {
            let op = self.record.invoke(&key, Call::Release { token });
            drop(ticket);
            self.record.end(op, Outcome::Indeterminate);
        } else if self.chance(self.load.repeat) {
            let _ = ticket.detach();
            let [first, second] = [(); 2].map(|()| self.record.invoke(&key, Call::Release { token }));
            let one = async {
                self.record.end(first, released(&self.broker.release(&key, token).await));
            };
            let other = async {
                self.record.end(second, released(&self.broker.release(&key, token).await));
            };
            tokio::join!(one, other);
        } else {
            let op = self.record.invoke(&key, Call::Release { token });
            let outcome = released(&ticket.release().await);
            self.record.end(op, outcome);
        }
    }
}

/// How an acquire ended that has no ticket.
fn not_granted(kind: ErrorKind) -> Outcome {
    match kind {
        ErrorKind::Timeout => Outcome::TimedOut,
        ErrorKind::Busy => Outcome::Busy,
        ErrorKind::Indeterminate => Outcome::Indeterminate,
        ErrorKind::InsufficientLease => Outcome::GivenBack,
        ErrorKind::NotConnected | ErrorKind::ClientCapacity | ErrorKind::Closed => Outcome::NotSent,
        ErrorKind::Auth | ErrorKind::Tls | ErrorKind::WrongDomain | ErrorKind::InvalidInput => {
            Outcome::NotSent
        }
        ErrorKind::NotHeld | ErrorKind::ReleaseUnconfirmed | ErrorKind::Unsupported => {
            panic!("an acquire ended as {kind}")
        }
    }
}

fn released(outcome: &Result<(), TicketError>) -> Outcome {
    let Err(error) = outcome else { return Outcome::Released };
    match error.kind() {
        ErrorKind::NotHeld => Outcome::NotHeld { retried: error.may_have_released() },
        ErrorKind::ReleaseUnconfirmed => Outcome::Indeterminate,
        ErrorKind::ClientCapacity | ErrorKind::Closed | ErrorKind::NotConnected => Outcome::NotSent,
        ErrorKind::Auth | ErrorKind::Tls | ErrorKind::WrongDomain => Outcome::NotSent,
        kind @ (ErrorKind::Timeout
        | ErrorKind::Busy
        | ErrorKind::Indeterminate
        | ErrorKind::InsufficientLease)
        | kind @ (ErrorKind::InvalidInput | ErrorKind::Unsupported) => panic!("a release ended as {kind}"),
    }
}
