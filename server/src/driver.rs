//! The one task that owns the engine.
//!
//! It works in turns: everything that arrived meanwhile goes into the engine at
//! one reading of the clock, what was decided is committed as one batch, the
//! answers go to their connections, and each connection is woken once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ticketing_engine::{ConnId, Engine, Input, Stats};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout_at};

use crate::clock::Clock;
use crate::conn::{Answers, Conn, LostGrant, Message};
use crate::counters::Counters;
use crate::single::Tokens;

/// Requests after which a turn ends, so that the first answers do not wait for the last request.
const REQUESTS_PER_TURN: usize = 4096;

/// Messages that are taken out of the channel at a time.
const MESSAGES_PER_TURN: usize = 256;

/// The timers of the runtime stop while the machine sleeps, leases do not: no
/// sleep is longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What the driver last said about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) engine: Stats,
    pub(crate) turns: u64,
    pub(crate) next_token: u64,
    pub(crate) token_ceiling: u64,
    /// Nothing can be granted until more tokens are reserved.
    pub(crate) out_of_tokens: bool,
}

/// The report, for whoever wants to read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published(Arc<Mutex<Report>>);

impl Published {
    pub(crate) fn read(&self) -> Report {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Owns the engine.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) timers_per_tick: u32,
    pub(crate) clock: Clock,
    pub(crate) tokens: Tokens,
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) published: Published,
}

/// What a turn leaves for the next one, and buffers.
#[derive(Debug, Default)]
struct Desk {
    /// Connections that have sent a request and have not ended.
    conns: HashMap<ConnId, Arc<Conn>>,
    /// Messages that were taken out of the channel.
    messages: VecDeque<Message>,
    taken: Vec<Message>,
    /// Grants whose connection had ended when they were decided.
    lost: Vec<LostGrant>,
    /// Connections whose requests were part of this turn.
    served: Vec<Arc<Conn>>,
    wakers: Vec<Waker>,
    turns: u64,
}

impl Driver {
    /// Runs until every sender is gone.
    pub(crate) async fn run(mut self) {
        let mut desk = Desk::default();
        loop {
            self.publish(&desk);
            if !self.wait(&mut desk).await {
                return;
            }
            self.have_tokens(&desk).await;
            self.turn(&mut desk);
        }
    }

    /// Waits until there is something to do; false: there never will be.
    async fn wait(&mut self, desk: &mut Desk) -> bool {
        let idle = desk.messages.is_empty() && desk.lost.is_empty();
        let until_due = match self.engine.next_deadline() {
            _ if !idle => Duration::ZERO,
            Some(deadline) => {
                Duration::from_nanos(deadline.saturating_sub(self.clock.now())).min(LONGEST_SLEEP)
            }
            None => LONGEST_SLEEP,
        };
        if until_due.is_zero() {
            // Sessions get to write between two turns; what they bring stands behind what waits already.
            yield_now().await;
            while desk.messages.len() < MESSAGES_PER_TURN
                && let Ok(message) = self.inbox.try_recv()
            {
                desk.messages.push_back(message);
            }
            return true;
        }
        tokio::select! {
            biased;
            taken = self.inbox.recv_many(&mut desk.taken, MESSAGES_PER_TURN) => {
                desk.messages.extend(desk.taken.drain(..));
                taken > 0
            }
            ceiling = self.tokens.more() => {
                self.raise_ceiling(ceiling);
                true
            }
            () = sleep(until_due) => true,
        }
    }

    /// Makes sure that no acquire of the next turn is refused for want of a token
    /// that is only not reserved yet. Once the disk has failed nothing waits for it:
    /// acquires are refused at the ceiling, and all else goes on.
    async fn have_tokens(&mut self, desk: &Desk) {
        let lost = desk.messages.iter().map(|message| match message {
            Message::Lost(grants) => grants.len(),
            Message::Requests(..) | Message::Closed(_) | Message::Drain => 0,
        });
        let inputs = MESSAGES_PER_TURN + REQUESTS_PER_TURN + crate::session::READ_BYTES + desk.lost.len();
        let inputs = inputs + lost.sum::<usize>();
        // Each may be granted, and again where the connection turns out to have closed.
        let needed = 2 * (inputs as u64 + u64::from(self.timers_per_tick));
        let mut waited = false;
        loop {
            // A driver that is never idle hears of it only here.
            if self.tokens.settled() {
                let ceiling = self.tokens.more().await;
                self.raise_ceiling(ceiling);
            }
            self.tokens.reserve_ahead(self.engine.next_token());
            if self.tokens.suffice(self.engine.next_token(), needed) {
                return;
            }
            let Some(until) = self.tokens.worth_waiting() else { return };
            if !waited {
                self.counters.reservation_waits.add(1);
                waited = true;
            }
            if let Ok(ceiling) = timeout_at(until, self.tokens.more()).await {
                self.raise_ceiling(ceiling);
            }
        }
    }

    fn raise_ceiling(&mut self, ceiling: u64) {
        self.engine.handle(self.clock.now(), Input::TokenCeiling(ceiling));
    }

    fn turn(&mut self, desk: &mut Desk) {
        let now = self.clock.now();
        for LostGrant { token, key } in desk.lost.drain(..) {
            self.engine.handle(now, Input::Undelivered { token, key: &key });
        }
        let mut requests_taken = 0;
        while requests_taken < REQUESTS_PER_TURN
            && let Some(message) = desk.messages.pop_front()
        {
            match message {
                Message::Requests(conn, requests) => {
                    requests_taken += requests.len();
                    self.engine.expect(requests.keys());
                    for request in requests.iter() {
                        self.engine.handle(now, Input::Request(conn.id, request));
                    }
                    desk.conns.entry(conn.id).or_insert_with(|| Arc::clone(&conn));
                    desk.served.push(conn);
                }
                Message::Closed(id) => {
                    self.engine.handle(now, Input::Closed(id));
                    desk.conns.remove(&id);
                }
                Message::Lost(grants) => {
                    for LostGrant { token, key } in grants {
                        self.engine.handle(now, Input::Undelivered { token, key: &key });
                    }
                }
                Message::Drain => self.engine.handle(now, Input::Drain),
            }
        }
        if self.engine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.engine.handle(now, Input::Tick);
        }
        // Nobody else has to agree: what was decided is committed. That itself can decide
        // something: a grant to a connection that has closed goes on to the next waiter.
        while let Some(batch) = self.engine.seal() {
            self.engine.handle(now, Input::Committed(batch.seq()));
            self.engine.recycle(batch);
        }
        self.give_answers(desk);
        desk.turns += 1;
    }

    fn give_answers(&mut self, desk: &mut Desk) {
        let Desk { conns, lost, served, wakers, .. } = desk;
        // Answers of one connection come in a row more often than not.
        let mut open: Option<(ConnId, Answers<'_>)> = None;
        self.engine.drain(|id, answer| {
            if open.as_ref().is_none_or(|(open_id, _)| *open_id != id) {
                wakers.extend(open.take().and_then(|(_, answers)| answers.done()));
                open = conns.get(&id).map(|conn| (id, conn.answers()));
            }
            if let Some((_, answers)) = &mut open
                && let Err(grant) = answers.push(answer)
            {
                lost.push(grant);
            }
        });
        wakers.extend(open.and_then(|(_, answers)| answers.done()));
        wakers.extend(served.drain(..).filter_map(|conn| conn.served()));
        wakers.drain(..).for_each(Waker::wake);
        self.counters.lost_grants.add(lost.len() as u64);
    }

    fn publish(&self, desk: &Desk) {
        self.published.write(Report {
            engine: self.engine.stats(),
            turns: desk.turns,
            next_token: self.engine.next_token(),
            token_ceiling: self.tokens.ceiling(),
            out_of_tokens: !self.tokens.suffice(self.engine.next_token(), 1),
        });
    }
}

#[cfg(test)]
mod tests;
