//! The one task that owns the engine.
//!
//! It works in turns: everything that arrived meanwhile goes into the engine at
//! one reading of the clock, what was decided is proposed as one batch, and what
//! has been committed is answered: each connection is woken once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ticketing_cluster::{Stage, Standing};
use ticketing_engine::{ConnId, Decider, Engine, Fate, Input, Nanos, Office, Stats};
use ticketing_protocol::handshake::Domain;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::commit::{Commit, Event};
use crate::conn::{Answers, Conn, LostGrant, Message};
use crate::view::{Lead, View};

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
    /// This server decides.
    pub(crate) in_office: bool,
    /// Batches whose fate is open.
    pub(crate) batches_in_flight: u64,
    pub(crate) turns: u64,
    pub(crate) next_token: u64,
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

/// Owns the engines.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) decider: Decider,
    /// With what an engine begins.
    pub(crate) engine: ticketing_engine::Config,
    pub(crate) commit: Commit,
    pub(crate) clock: Clock,
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) published: Published,
    /// What clients are told this server is.
    pub(crate) view: watch::Sender<View>,
    /// The last office that this node was in.
    pub(crate) last_office: Option<Office>,
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
    /// Connections that end once they have been told what was decided for them.
    leaving: Vec<Arc<Conn>>,
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
            self.turn(&mut desk).await;
        }
    }

    /// Waits until there is something to do; false: there never will be.
    async fn wait(&mut self, desk: &mut Desk) -> bool {
        let idle = desk.messages.is_empty() && desk.lost.is_empty();
        let until_due = match self.decider.next_deadline() {
            _ if !idle => Duration::ZERO,
            Some(deadline) => {
                Duration::from_nanos(deadline.saturating_sub(self.clock.now())).min(LONGEST_SLEEP)
            }
            None => LONGEST_SLEEP,
        };
        let until_due = match self.commit.deadline() {
            Some(deadline) => until_due.min(deadline.saturating_duration_since(Instant::now())),
            None => until_due,
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
            event = self.commit.next() => {
                self.take_note(event);
                true
            }
            () = sleep(until_due) => true,
        }
    }

    /// Takes note of what happened to the log.
    fn take_note(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Told(office, seq, fate) => {
                self.decider.settle(now, office, seq, fate);
                if let Commit::Log(proposals) = &self.commit
                    && fate != Fate::Applied
                {
                    proposals.cluster.renounce(office);
                }
            }
            Event::Standing(standing) => self.stand(now, &standing),
        }
    }

    /// Takes office or leaves it, and lets clients know.
    fn stand(&mut self, now: Nanos, standing: &Standing) {
        let Commit::Log(proposals) = &self.commit else { return };
        if self.decider.office() != standing.office {
            // One that was given up stands there until it is followed by another one.
            let office = standing.office.filter(|&office| self.last_office < Some(office));
            match office.zip(proposals.cluster.replica()) {
                Some((office, replica)) => {
                    self.last_office = Some(office);
                    let config =
                        ticketing_engine::Config { next_token: replica.place().first_token, ..self.engine };
                    self.decider.take_office(now, office, Engine::restore(config, replica.table()));
                }
                None => self.decider.leave_office(now),
            }
        }
        let is_active = standing.stage == Stage::Member;
        let domain = standing.identity.filter(|_| is_active).map(|identity| Domain(identity.0));
        let lead = match &standing.leader {
            _ if self.decider.office().is_some() => Lead::Here,
            Some(leader) if standing.node != Some(leader.node) => Lead::There(leader.client.as_str().into()),
            // A leader that is not in office yet.
            Some(_) | None => Lead::Unknown,
        };
        let view = View { domain, lead };
        self.view.send_if_modified(|current| {
            let changes = *current != view;
            *current = view;
            changes
        });
    }

    async fn turn(&mut self, desk: &mut Desk) {
        while let Some(event) = self.commit.try_next() {
            self.take_note(event);
        }
        let now = self.clock.now();
        for LostGrant { token, key } in desk.lost.drain(..) {
            self.decider.handle(now, Input::Undelivered { token, key: &key });
        }
        let mut requests_taken = 0;
        while requests_taken < REQUESTS_PER_TURN
            && let Some(message) = desk.messages.pop_front()
        {
            match message {
                Message::Requests(conn, requests) => {
                    requests_taken += requests.len();
                    self.decider.expect(requests.keys());
                    for request in requests.iter() {
                        self.decider.handle(now, Input::Request(conn.id, request));
                    }
                    desk.conns.entry(conn.id).or_insert_with(|| Arc::clone(&conn));
                    desk.served.push(conn);
                }
                Message::Leaving(conn) => {
                    self.decider.handle(now, Input::Leaving(conn.id));
                    desk.leaving.push(conn);
                }
                Message::Closed(id) => {
                    desk.leaving.retain(|conn| conn.id != id);
                    self.decider.handle(now, Input::Closed(id));
                    desk.conns.remove(&id);
                }
                Message::Lost(grants) => {
                    for LostGrant { token, key } in grants {
                        self.decider.handle(now, Input::Undelivered { token, key: &key });
                    }
                }
                Message::Drain => self.decider.handle(now, Input::Drain),
            }
        }
        if self.decider.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.decider.handle(now, Input::Tick);
        }
        match &mut self.commit {
            // What was decided is committed. That itself can decide something: a grant to
            // a connection that has closed goes on to the next waiter.
            Commit::Memory => {
                while let Some((office, batch)) = self.decider.seal() {
                    self.decider.settle(now, office, batch.seq(), Fate::Applied);
                    self.decider.recycle(batch);
                }
            }
            Commit::Log(proposals) => {
                while proposals.has_room()
                    && let Some((office, batch)) = self.decider.seal()
                {
                    proposals.propose(office, &batch).await;
                    self.decider.recycle(batch);
                }
            }
        }
        self.give_answers(desk);
        desk.turns += 1;
    }

    fn give_answers(&mut self, desk: &mut Desk) {
        let Desk { conns, lost, leaving, served, wakers, .. } = desk;
        let lead = self.view.borrow().lead.clone();
        let elsewhere = match &lead {
            _ if self.decider.office().is_some() => None,
            // It has just lost its office and does not know to whom.
            Lead::Here | Lead::Unknown => Some(""),
            Lead::There(address) => Some(&**address),
        };
        // Answers of one connection come in a row more often than not.
        let mut open: Option<(ConnId, Answers<'_>)> = None;
        self.decider.drain(|id, answer| {
            if open.as_ref().is_none_or(|(open_id, _)| *open_id != id) {
                wakers.extend(open.take().and_then(|(_, answers)| answers.done()));
                open = conns.get(&id).map(|conn| (id, conn.answers(elsewhere)));
            }
            if let Some((_, answers)) = &mut open
                && let Err(grant) = answers.push(answer)
            {
                lost.push(grant);
            }
        });
        wakers.extend(open.and_then(|(_, answers)| answers.done()));
        wakers.extend(served.drain(..).filter_map(|conn| conn.served()));
        let settled = leaving.extract_if(.., |conn| !self.decider.owes_any(conn.id));
        wakers.extend(settled.filter_map(|conn| conn.settled()));
        wakers.drain(..).for_each(Waker::wake);
    }

    fn publish(&self, desk: &Desk) {
        self.published.write(Report {
            engine: self.decider.stats(),
            in_office: self.decider.office().is_some(),
            batches_in_flight: self.decider.pending() as u64,
            turns: desk.turns,
            next_token: self.decider.next_token(),
        });
    }
}

#[cfg(test)]
mod tests;
