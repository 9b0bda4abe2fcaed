//! Who waits for what at the node in office: written down when a request goes in,
//! compared with what comes out.

use std::collections::BTreeMap;

use ticketing_engine::{Answer, Nanos};

use super::{Ledger, PROMPT};

#[derive(Debug, Default)]
pub(crate) struct Queues {
    arrivals: u64,
    keys: BTreeMap<Box<[u8]>, Vec<Waiter>>,
    /// Keys of the grants of this turn, with the arrival of whoever got it.
    granted: Vec<(Box<[u8]>, u64)>,
    /// Connections whose end was told in this turn.
    closed: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    conn: u64,
    owner: u64,
    arrival: u64,
    /// Up to when, on the server's clock.
    until: Nanos,
    /// Whether it has a place in the queue that nobody may overtake.
    queues: bool,
}

impl Queues {
    /// Another office: whoever waited in the last one is told so.
    pub(crate) fn begin(&mut self) {
        self.keys.clear();
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        !self.keys.values().flatten().any(|waiter| waiter.queues)
    }

    /// An acquire goes into the engine.
    pub(crate) fn asked(&mut self, conn: u64, owner: u64, key: &[u8], until: Nanos, queues: bool) {
        self.arrivals += 1;
        let waiter = Waiter { conn, owner, arrival: self.arrivals, until, queues };
        self.keys.entry(key.into()).or_default().push(waiter);
    }

    /// The engine is told that a connection has ended. Before that it may have
    /// granted it something in this very turn, but no later.
    pub(crate) fn closed(&mut self, conn: u64) {
        self.closed.push(conn);
    }

    /// The engine grants the key.
    pub(crate) fn granted(&mut self, ledger: &mut Ledger, key: &[u8], owner: u64) {
        match self.take(key, |waiter| waiter.owner == owner) {
            Some(waiter) => self.granted.push((key.into(), waiter.arrival)),
            None => ledger.fail("Orphan", format!("{owner:x} is granted a key and does not wait for it")),
        }
    }

    /// An answer comes out, `now`; the server could have said it since `ready`.
    pub(crate) fn answered(
        &mut self,
        ledger: &mut Ledger,
        (now, ready): (Nanos, Nanos),
        conn: u64,
        answer: Answer<'_>,
    ) {
        match answer {
            Answer::TimedOut { owner, key } => {
                let waiter = self.take(key, |waiter| (waiter.conn, waiter.owner) == (conn, owner));
                let Some(waiter) = waiter.filter(|waiter| waiter.queues) else { return };
                if now < waiter.until {
                    let early = (waiter.until - now) / 1_000_000;
                    ledger.fail("Wait", format!("that of {owner:x} runs out {early} ms early"));
                }
                if now > waiter.until.max(ready) + PROMPT {
                    let late = (now - waiter.until.max(ready)) / 1_000_000;
                    ledger.fail("Wait", format!("that of {owner:x} runs out {late} ms late"));
                }
            }
            Answer::Busy { owner, key } => {
                self.take(key, |waiter| (waiter.conn, waiter.owner) == (conn, owner));
            }
            Answer::Granted { .. }
            | Answer::Released { .. }
            | Answer::NotHeld { .. }
            | Answer::Place { .. }
            | Answer::Verified { .. }
            | Answer::VerifiedBusy { .. }
            | Answer::NotLeader
            | Answer::CloseUnknown
            | Answer::CloseOverloaded => {}
        }
    }

    /// The turn is over: whoever was granted a key was the first of those who still wait.
    pub(crate) fn settle(&mut self, ledger: &mut Ledger) {
        let closed = std::mem::take(&mut self.closed);
        if !closed.is_empty() {
            self.keys.retain(|_, waiters| {
                waiters.retain(|waiter| !closed.contains(&waiter.conn));
                !waiters.is_empty()
            });
        }
        for (key, arrival) in std::mem::take(&mut self.granted) {
            let waiters = self.keys.get(&key).into_iter().flatten();
            let ahead = waiters.filter(|waiter| waiter.queues && waiter.arrival < arrival);
            if let Some(waiter) = ahead.min_by_key(|waiter| waiter.arrival) {
                ledger.fail("Order", format!("{:x} came first and still waits", waiter.owner));
            }
        }
    }

    fn take(&mut self, key: &[u8], is_meant: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        let waiters = self.keys.get_mut(key)?;
        let waiter = waiters.remove(waiters.iter().position(is_meant)?);
        if waiters.is_empty() {
            self.keys.remove(key);
        }
        Some(waiter)
    }
}
