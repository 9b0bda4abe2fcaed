//! The one task that owns the decider: whatever has come goes in at one reading of
//! the clock, what was decided is proposed as one batch, and answers go out.

use ticketing_engine::{Answer, ConnId, Effect, Fate, Input, Office, Request, record};

use super::session::Ending;
use super::{Inbox, Node, Server};
use crate::cluster::Command;
use crate::context::Context;
use crate::events::NodeEvent;
use crate::mutant::Mutant;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::trace::Line;

/// No fate is waited for longer.
pub(super) const PATIENCE: u64 = 5 * SECOND;

impl Node {
    /// Something for the driver's next turn.
    pub(super) fn bring(&mut self, ctx: &mut Context, message: Inbox) {
        self.server.inbox.push_back(message);
        self.turn_soon(ctx);
    }

    pub(super) fn turn_soon(&mut self, ctx: &mut Context) {
        if !std::mem::replace(&mut self.server.turn_is_due, true) {
            // What comes meanwhile is part of the same turn.
            let pause = ctx.random.between(0, 300 * MICROSECOND);
            ctx.node_in(pause, self.slot, self.life, NodeEvent::Turn);
        }
    }

    /// The server drains, as before a planned stop.
    pub(crate) fn drain(&mut self, ctx: &mut Context) {
        self.server.draining = true;
        self.bring(ctx, Inbox::Drain);
    }

    /// The fate of a batch has come, or the time to wait for it is over.
    pub(crate) fn fate(&mut self, ctx: &mut Context, office: Office, seq: u64, fate: Fate) {
        // That it was applied may be told after the time to wait for it was over, or twice.
        if self.server.untold.remove(&(office, seq)) || fate == Fate::Applied {
            self.bring(ctx, Inbox::Fate(office, seq, fate));
        }
    }

    pub(crate) fn out_of_patience(&mut self, ctx: &mut Context, office: Office, seq: u64) {
        let late = if ctx.plan.is(Mutant::LateIsRefused) { Fate::Refused } else { Fate::Unknown };
        self.fate(ctx, office, seq, late);
    }

    pub(crate) fn turn(&mut self, ctx: &mut Context) {
        self.server.turn_is_due = false;
        let now = self.local(ctx);
        let office = self.server.decider.office();
        while let Some(message) = self.server.inbox.pop_front() {
            self.take(ctx, now, message);
        }
        if self.server.decider.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.server.decider.handle(now, Input::Tick);
        }
        while let Some((office, batch)) = self.server.decider.seal() {
            let seq = batch.seq();
            for effect in batch.effects() {
                self.note_effect(ctx, effect);
                if let Effect::Grant { token, .. } | Effect::HandOff { token, .. } = effect {
                    self.server.unheard.entry((office, seq)).or_default().push(token);
                }
            }
            let mut bytes = Vec::new();
            record::encode(batch.effects(), &mut bytes);
            self.server.untold.insert((office, seq));
            self.propose_soon(ctx, Command::Batch { office, seq, record: bytes.into() });
            ctx.node_in(PATIENCE, self.slot, self.life, NodeEvent::Patience { office, seq });
            self.server.decider.recycle(batch);
        }
        self.give_answers(ctx, now);
        if let Some(office) = office.filter(|_| self.server.decider.office() != office) {
            self.out_of_office(ctx, office);
        }
        self.set_alarm(ctx);
    }

    fn take(&mut self, ctx: &mut Context, now: u64, message: Inbox) {
        match message {
            Inbox::Requests(id, requests) => {
                for asked in requests {
                    let request = asked.request();
                    self.note_request(ctx, id, request);
                    self.server.decider.handle(now, Input::Request(ConnId(id), request));
                }
            }
            Inbox::Closed(id) => {
                self.server.queues.closed(id);
                if !ctx.plan.is(Mutant::ForgetsClosed) {
                    self.server.decider.handle(now, Input::Closed(ConnId(id)));
                }
            }
            Inbox::Lost(grants) => {
                for (token, key) in grants {
                    ctx.ledger.undelivered(token, self.server.decider.office());
                    if !ctx.plan.is(Mutant::ForgetsUndelivered) {
                        self.server.decider.handle(now, Input::Undelivered { token, key: &key });
                    }
                }
            }
            Inbox::Fate(office, seq, fate) => {
                let tokens = self.server.unheard.remove(&(office, seq)).unwrap_or_default();
                if fate == Fate::Applied {
                    tokens.into_iter().for_each(|token| ctx.ledger.begins(ctx.now, token));
                } else {
                    ctx.note(Line::Fate { slot: self.slot, office, seq, fate });
                }
                if fate == Fate::Applied || !ctx.plan.is(Mutant::KeepsOfficeAfterRefusal) {
                    self.server.decider.settle(now, office, seq, fate);
                }
            }
            Inbox::Drain => self.server.decider.handle(now, Input::Drain),
        }
    }

    fn note_request(&mut self, ctx: &mut Context, id: u64, request: Request<'_>) {
        let in_office = self.server.decider.office().is_some();
        match request {
            Request::Acquire { wait_secs, owner, key, received, .. } if in_office => {
                // No queue for whom a verify has buried, or for whom there is no time.
                let queues = wait_secs > 0 && !ctx.ledger.is_verified(owner);
                let until = received + u64::from(wait_secs) * SECOND;
                self.server.queues.asked(id, owner, key, until, queues);
            }
            Request::Verify { owner, .. } => ctx.ledger.verified(owner),
            Request::Acquire { .. }
            | Request::Release { .. }
            | Request::Cancel { .. }
            | Request::Place { .. } => {}
        }
    }

    fn note_effect(&mut self, ctx: &mut Context, effect: Effect<'_>) {
        let ready = self.server.ready();
        match effect {
            Effect::Expire { token, .. } | Effect::HandOff { ended: token, expired: true, .. } => {
                let office = self.server.decider.office();
                ctx.ledger.expires(ctx.now, (self.slot, office), token, ready);
            }
            Effect::Grant { .. }
            | Effect::Release { .. }
            | Effect::HandOff { .. }
            | Effect::Bury { .. }
            | Effect::Forget { .. } => {}
        }
        match effect {
            Effect::Grant { key, owner, .. } | Effect::HandOff { key, owner, .. } => {
                self.server.queues.granted(&mut ctx.ledger, key, owner);
            }
            Effect::Release { .. } | Effect::Expire { .. } | Effect::Bury { .. } | Effect::Forget { .. } => {}
        }
    }

    pub(super) fn propose_soon(&mut self, ctx: &mut Context, command: Command) {
        let worst = if ctx.random.chance(0.02) { 20 * MILLISECOND } else { ctx.plan.telling };
        let at = ctx.now + ctx.random.between(0, worst);
        self.raft.proposal_at = self.raft.proposal_at.max(at);
        let pause = self.raft.proposal_at - ctx.now;
        ctx.node_in(pause, self.slot, self.life, NodeEvent::Propose(Box::new(command)));
    }

    fn give_answers(&mut self, ctx: &mut Context, now: u64) {
        let ready = self.clock.at(self.server.ready());
        let Server { decider, conns, queues, hint, .. } = &mut self.server;
        let in_office = decider.office().is_some();
        let (mut lost, mut touched, mut closing) = (Vec::new(), Vec::new(), Vec::new());
        decider.drain(|ConnId(id), answer| {
            queues.answered(&mut ctx.ledger, (now, ready), id, answer);
            let Some(conn) = conns.get_mut(&id) else {
                if let Answer::Granted { token, key, .. } = answer {
                    lost.push((token, key.into()));
                }
                return;
            };
            if conn.put(answer, in_office, *hint) == Ending::Close && !closing.contains(&id) {
                closing.push(id);
            }
            if touched.last() != Some(&id) {
                touched.push(id);
            }
        });
        queues.settle(&mut ctx.ledger);
        for id in touched {
            self.flush(ctx, id);
        }
        for id in closing {
            self.hang_up(ctx, id);
        }
        if !lost.is_empty() {
            self.bring(ctx, Inbox::Lost(lost));
        }
    }

    /// Sees to it that the driver has a turn when the engine has something due.
    fn set_alarm(&mut self, ctx: &mut Context) {
        let Some(deadline) = self.server.decider.next_deadline() else { return };
        let at = self.clock.when(deadline).max(ctx.now);
        if at < self.server.alarm_at || self.server.alarm_at <= ctx.now {
            self.server.alarm_at = at;
            ctx.node_in(at - ctx.now, self.slot, self.life, NodeEvent::Alarm);
        }
    }

    pub(crate) fn alarm(&mut self, ctx: &mut Context) {
        if self.server.alarm_at <= ctx.now {
            self.server.alarm_at = u64::MAX;
            self.turn_soon(ctx);
        }
    }
}
