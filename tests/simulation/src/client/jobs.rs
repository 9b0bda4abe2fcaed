//! Requests of callers, from their beginning to their end, by the rules of the
//! client's own futures: an acquire is sent again only if no byte of it was, a
//! release until its deadline, a verify until somebody can say.

use std::sync::Arc;

use ticketing::sans_io::{Kind, Request};
use ticketing_engine::Nanos;
use ticketing_history::{Call, Outcome};

use super::{Caller, Client};
use crate::context::Context;
use crate::events::ClientEvent;
use crate::mutant::Mutant;
use crate::time::{MILLISECOND, SECOND};
use crate::trace::Line;

const RELEASE_TIMEOUT: Nanos = 5 * SECOND;
pub(super) const VERIFY_TIMEOUT: Nanos = 30 * SECOND;
const PLACE_TIMEOUT: Nanos = 5 * SECOND;

/// How long an immediate try waits for a session.
const IMMEDIATE_PATIENCE: Nanos = SECOND;

/// Before a node that could not say is asked again.
const PAUSE: u64 = 100 * MILLISECOND;

/// One request, over all its tries.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: Arc<str>,
    pub(super) what: What,
    pub(super) until: Nanos,
    /// The link that has it.
    pub(super) link: Option<u8>,
    /// Who waits for it. Without anybody it is a record, or goes on by itself.
    pub(super) caller: Option<u8>,
    /// Its place in the record.
    pub(super) op: Option<usize>,
    /// It pauses before the next try.
    rests: bool,
    /// Nothing is broken while it runs: it must be answered.
    pub(super) fair: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Acquire { owner: u64, wait_secs: u8, lease_secs: u8 },
    Verify { owner: u64, lease_secs: u8, sent_at: Nanos, not: Option<u8> },
    Place { owner: u64 },
    Release { token: u64, tried: bool },
}

/// Who gets the grant of an acquire that was given up as unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Open,
    Verified,
    Released,
}

impl Job {
    pub(super) const fn is_awaited(&self) -> bool {
        self.caller.is_some() || matches!(self.what, What::Release { .. })
    }

    /// Whether it must ask one that leads, and whom it must not ask.
    const fn choice(&self) -> (bool, Option<u8>) {
        match self.what {
            What::Verify { not, .. } => (true, not),
            What::Acquire { .. } | What::Place { .. } | What::Release { .. } => (false, None),
        }
    }

    const fn kind(&self) -> Kind {
        match self.what {
            What::Acquire { owner, wait_secs, lease_secs } => Kind::Acquire { owner, wait_secs, lease_secs },
            What::Verify { owner, lease_secs, sent_at, .. } => Kind::Verify { owner, lease_secs, sent_at },
            What::Place { owner } => Kind::Place { owner },
            What::Release { token, .. } => Kind::Release { token },
        }
    }
}

impl Client {
    pub(super) fn acquire(
        &mut self,
        ctx: &mut Context,
        worker: u8,
        key: &Arc<str>,
        (wait_secs, lease_secs): (u8, u8),
    ) {
        let owner = self.next_owner;
        self.next_owner += 1;
        let patience = if wait_secs == 0 { IMMEDIATE_PATIENCE } else { u64::from(wait_secs) * SECOND };
        ctx.ledger.asks(self.who(), owner, key);
        let (client, shown) = (self.number, Arc::clone(key));
        ctx.note(Line::Asked { client, owner, key: shown, wait: wait_secs, lease: lease_secs });
        let what = What::Acquire { owner, wait_secs, lease_secs };
        self.begin_job(ctx, Arc::clone(key), what, patience, Some(worker));
    }

    /// Gives a lock back; nobody needs to wait for that.
    pub(super) fn release(&mut self, ctx: &mut Context, key: Arc<str>, token: u64, worker: Option<u8>) {
        if !ctx.plan.is(Mutant::ActsAfterRelease) {
            ctx.ledger.releases(ctx.now, token);
        }
        ctx.note(Line::Releases { client: self.number, token });
        self.begin_job(ctx, key, What::Release { token, tried: false }, RELEASE_TIMEOUT, worker);
    }

    pub(super) fn begin_job(
        &mut self,
        ctx: &mut Context,
        key: Arc<str>,
        what: What,
        patience: Nanos,
        caller: Option<u8>,
    ) {
        let id = self.next_job;
        self.next_job += 1;
        let until = self.local(ctx) + patience;
        let call = match what {
            What::Acquire { owner, wait_secs, lease_secs } => {
                Some((Call::acquire(wait_secs, lease_secs), Some(owner)))
            }
            What::Verify { owner, .. } => Some((Call::Verify { of: owner }, None)),
            What::Release { token, .. } => Some((Call::Release { token }, None)),
            What::Place { .. } => None,
        };
        let op = call.map(|(call, id)| ctx.record.begins(ctx.now, self.who(), &key, call, id));
        let job = Job { key, what, until, link: None, caller, op, rests: false, fair: ctx.fair };
        self.jobs.insert(id, job);
        self.choose(ctx, id);
    }

    /// Asks for the place of an acquire, where it waits.
    pub(super) fn place(&mut self, ctx: &mut Context, acquire: u64) {
        let Some(job) = self.jobs.get(&acquire) else { return };
        let What::Acquire { owner, .. } = job.what else { return };
        self.begin_job(ctx, Arc::clone(&job.key), What::Place { owner }, PLACE_TIMEOUT, None);
    }

    /// The caller of an acquire goes away.
    pub(super) fn give_up(&mut self, ctx: &mut Context, id: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.caller.is_some()) else { return false };
        let What::Acquire { owner, .. } = job.what else { return false };
        job.caller = None;
        ctx.record.ends(ctx.now, job.op, Outcome::GivenBack);
        let (key, link) = (Arc::clone(&job.key), job.link);
        match link {
            None => {
                self.jobs.remove(&id);
            }
            Some(number) => {
                if let Some(session) = self.link(number).and_then(super::broker::Link::session) {
                    session.give_up(owner, &key);
                }
                self.drive(ctx, number);
            }
        }
        true
    }

    /// Sends a request, or waits for somebody to send it to.
    fn choose(&mut self, ctx: &mut Context, id: u64) {
        let local = self.local(ctx);
        let Some(job) = self.jobs.get(&id) else { return };
        if local >= job.until {
            return self.too_late(ctx, id);
        }
        let (leads, not) = job.choice();
        let Some(number) = self.pick(leads, not) else {
            let pause = self.jobs.get(&id).map_or(0, |job| self.pause_until(ctx, job.until));
            return ctx.client_in(pause, self.number, self.life, ClientEvent::Job(id));
        };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.link = Some(number);
        let request = Request { key: Arc::clone(&job.key), kind: job.kind(), until: job.until };
        let op = job.op;
        let caller = Caller { job: id, told: std::rc::Rc::clone(&self.told) };
        if let Some(session) = self.link(number).and_then(super::broker::Link::session) {
            session.submit(local, request, caller);
        }
        if let Some((op, conn)) = op.zip(self.link(number).and_then(|link| link.conn())) {
            ctx.record.submitted(op, conn);
        }
        self.drive(ctx, number);
    }

    /// A job that waits looks again.
    pub(crate) fn job(&mut self, ctx: &mut Context, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.link.is_none()) {
            job.rests = false;
            self.choose(ctx, id);
            self.go_on(ctx);
        }
    }

    /// Deals with what sessions have told, and lets those who wait choose again.
    pub(super) fn go_on(&mut self, ctx: &mut Context) {
        loop {
            let told = self.told.borrow_mut().pop_front();
            if let Some((id, fate)) = told {
                self.fated(ctx, id, &fate);
                continue;
            }
            let waits = |job: &Job| job.link.is_none() && !job.rests;
            let waiting = self.jobs.iter().filter(|(_, job)| waits(job));
            let waiting = waiting.map(|(&id, job)| (id, job.choice())).collect::<Vec<_>>();
            let next = waiting.into_iter().find(|&(_, (leads, not))| self.pick(leads, not).is_some());
            match next {
                Some((id, _)) => self.choose(ctx, id),
                None => return,
            }
        }
    }

    /// The session of a link is gone, and with it its records.
    pub(super) fn forget_link(&mut self, number: u8) {
        let told = self.told.borrow();
        self.jobs.retain(|id, job| {
            let record = job.caller.is_none() && !matches!(job.what, What::Release { .. });
            // What it said last is still to be heard.
            !(record && job.link == Some(number)) || told.iter().any(|(other, _)| other == id)
        });
    }

    /// Nothing was sent, and there is no time left.
    fn too_late(&mut self, ctx: &mut Context, id: u64) {
        let Some(job) = self.jobs.remove(&id) else { return };
        let nothing_sent = !matches!(job.what, What::Release { tried: true, .. } | What::Verify { .. });
        let outcome = if nothing_sent { Outcome::NotSent } else { Outcome::Indeterminate };
        ctx.record.ends(ctx.now, job.op, outcome);
        self.over(ctx, job.caller, "not connected");
    }

    pub(super) fn over(&mut self, ctx: &mut Context, caller: Option<u8>, how: &'static str) {
        if let Some(worker) = caller {
            self.finished(ctx, worker, how);
        }
    }

    pub(super) fn again(&mut self, ctx: &mut Context, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.link = None;
            if job.caller.is_none() && matches!(job.what, What::Acquire { .. } | What::Place { .. }) {
                self.jobs.remove(&id);
                return;
            }
            self.choose(ctx, id);
        }
    }

    pub(super) fn again_later(&mut self, ctx: &mut Context, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.link, job.rests) = (None, true);
            ctx.client_in(PAUSE, self.number, self.life, ClientEvent::Job(id));
        }
    }
}
