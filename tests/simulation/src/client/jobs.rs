//! Requests of callers, from their beginning to their end, by the rules of the
//! client's own futures: an acquire is sent again only if no byte of it was, a
//! release until its deadline, a verify until somebody can say.

use std::sync::Arc;

use ticketing::sans_io::{Fate, Kind, Request, Why};
use ticketing_engine::Nanos;

use super::{Caller, Client};
use crate::context::Context;
use crate::events::ClientEvent;
use crate::ledger::No;
use crate::mutant::Mutant;
use crate::time::{MILLISECOND, SECOND};
use crate::trace::Line;

const RELEASE_TIMEOUT: Nanos = 5 * SECOND;
const VERIFY_TIMEOUT: Nanos = 30 * SECOND;
const PLACE_TIMEOUT: Nanos = 5 * SECOND;

/// How long an immediate try waits for a session.
const IMMEDIATE_PATIENCE: Nanos = SECOND;

/// Before a node that could not say is asked again.
const PAUSE: u64 = 100 * MILLISECOND;

/// One request, over all its tries.
#[derive(Debug)]
pub(super) struct Job {
    key: Arc<str>,
    what: What,
    until: Nanos,
    /// The link that has it.
    link: Option<u8>,
    /// Who waits for it. Without anybody it is a record, or goes on by itself.
    caller: Option<u8>,
    /// It pauses before the next try.
    rests: bool,
    /// Nothing is broken while it runs: it must be answered.
    fair: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
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
        ctx.ledger.releases(ctx.now, token);
        ctx.note(Line::Releases { client: self.number, token });
        self.begin_job(ctx, key, What::Release { token, tried: false }, RELEASE_TIMEOUT, worker);
    }

    fn begin_job(
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
        self.jobs.insert(id, Job { key, what, until, link: None, caller, rests: false, fair: ctx.fair });
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
        let caller = Caller { job: id, told: std::rc::Rc::clone(&self.told) };
        if let Some(session) = self.link(number).and_then(super::broker::Link::session) {
            session.submit(local, request, caller);
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
        self.over(ctx, job.caller, "not connected");
    }

    fn fated(&mut self, ctx: &mut Context, id: u64, fate: &Fate) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let failed = matches!(fate, Fate::Unsent | Fate::Busy | Fate::Unanswered { .. });
        if job.fair && job.caller.is_some() && failed {
            ctx.ledger.fail("Liveness", format!("nothing is broken, and {job:?} ends as {fate:?}"));
        }
        match job.what {
            What::Acquire { owner, lease_secs, .. } => self.acquire_fated(ctx, id, (owner, lease_secs), fate),
            What::Verify { owner, lease_secs, .. } => self.verify_fated(ctx, id, (owner, lease_secs), fate),
            What::Release { token, tried } => self.release_fated(ctx, id, (token, tried), fate),
            What::Place { .. } => match fate {
                Fate::Unanswered { .. } => job.caller = None,
                _ => drop(self.jobs.remove(&id)),
            },
        }
    }

    fn over(&mut self, ctx: &mut Context, caller: Option<u8>, how: &'static str) {
        if let Some(worker) = caller {
            self.finished(ctx, worker, how);
        }
    }

    fn acquire_fated(&mut self, ctx: &mut Context, id: u64, (owner, lease_secs): (u64, u8), fate: &Fate) {
        let (local, client) = (self.local(ctx), self.number);
        match *fate {
            Fate::Granted { token, ends_at } => {
                let Some(job) = self.jobs.remove(&id) else { return };
                let claim = self.claims.get_mut(&owner);
                let spoken_for = claim.as_deref().is_some_and(|claim| *claim == Claim::Verified);
                if let Some(claim) = claim.filter(|claim| **claim == Claim::Open) {
                    *claim = Claim::Released;
                }
                if !spoken_for {
                    self.granted(ctx, (owner, lease_secs), &job.key, (token, ends_at), job.caller, false);
                }
            }
            Fate::TimedOut | Fate::Busy => {
                let no = if matches!(fate, Fate::Busy) { No::Busy } else { No::TimedOut };
                let why = if no == No::Busy { "is busy" } else { "waits no longer" };
                ctx.ledger.refused(owner, no);
                ctx.note(Line::Refused { client, owner, why });
                let Some(job) = self.jobs.remove(&id) else { return };
                self.over(ctx, job.caller, why);
            }
            Fate::Unsent => self.again(ctx, id),
            Fate::Unanswered { sent_at, ref why } => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                if matches!(why, Why::Lost(_)) && ctx.plan.is(Mutant::SendsAgain) && local < job.until {
                    return self.again(ctx, id);
                }
                let (key, caller) = (Arc::clone(&job.key), job.caller.take());
                let not = job.link.filter(|_| matches!(why, Why::Overdue));
                if not.is_none() {
                    self.jobs.remove(&id);
                }
                ctx.ledger.count.uncertain += 1;
                let why = if not.is_none() { "lost" } else { "overdue" };
                ctx.note(Line::Uncertain { client, owner, why });
                self.claims.entry(owner).or_insert(Claim::Open);
                if caller.is_some() && ctx.random.chance(0.6) {
                    let what = What::Verify { owner, lease_secs, sent_at, not };
                    self.begin_job(ctx, key, what, VERIFY_TIMEOUT, caller);
                } else {
                    self.over(ctx, caller, "indeterminate");
                }
            }
            Fate::Place { .. } | Fate::Released | Fate::NotHeld => {
                ctx.ledger.fail("Answer", format!("{owner:x} asks for a lock and is told {fate:?}"));
            }
        }
    }

    /// A grant has come; `caller` is who wants it.
    fn granted(
        &mut self,
        ctx: &mut Context,
        (owner, lease_secs): (u64, u8),
        key: &Arc<str>,
        (token, mut ends_at): (u64, Nanos),
        caller: Option<u8>,
        verified: bool,
    ) {
        let local = self.local(ctx);
        if ctx.plan.is(Mutant::CountsFromAnswer) {
            ends_at = local + u64::from(lease_secs) * 995 * MILLISECOND;
        }
        let taker = caller.filter(|_| local < ends_at);
        let left_ms = ends_at.saturating_sub(local) / MILLISECOND;
        ctx.note(Line::Granted { client: self.number, owner, token, left_ms, verified });
        ctx.ledger.granted(ctx.now, owner, token, self.clock.when(ends_at), taker.is_some());
        match taker {
            Some(worker) => self.holds(ctx, worker, (Arc::clone(key), token), lease_secs),
            None => {
                // Too late for whoever asked.
                self.over(ctx, caller, "insufficient lease");
                if !ctx.plan.is(Mutant::KeepsLateGrant) {
                    self.release(ctx, Arc::clone(key), token, None);
                }
            }
        }
    }

    fn verify_fated(&mut self, ctx: &mut Context, id: u64, (owner, lease_secs): (u64, u8), fate: &Fate) {
        let client = self.number;
        match *fate {
            Fate::Granted { token, ends_at } => {
                let Some(job) = self.jobs.remove(&id) else { return };
                match self.claims.get_mut(&owner) {
                    Some(claim) if *claim == Claim::Open && job.caller.is_some() => {
                        *claim = Claim::Verified;
                        ctx.ledger.count.verified += 1;
                        self.granted(ctx, (owner, lease_secs), &job.key, (token, ends_at), job.caller, true);
                    }
                    // The core has it and gives it back.
                    Some(_) | None => self.over(ctx, job.caller, "not acquired"),
                }
            }
            Fate::Busy => {
                ctx.ledger.refused(owner, No::NotAcquired);
                ctx.note(Line::Refused { client, owner, why: "never will be granted" });
                let Some(job) = self.jobs.remove(&id) else { return };
                self.over(ctx, job.caller, "not acquired");
            }
            Fate::Unanswered { why: Why::Overdue, .. } => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                let caller = job.caller.take();
                self.over(ctx, caller, "still indeterminate");
            }
            Fate::Unanswered { .. } | Fate::Unsent => {
                self.again_later(ctx, id);
            }
            Fate::TimedOut | Fate::Place { .. } | Fate::Released | Fate::NotHeld => {
                ctx.ledger.fail("Answer", format!("a verify of {owner:x} is told {fate:?}"));
            }
        }
    }

    fn release_fated(&mut self, ctx: &mut Context, id: u64, (token, tried): (u64, bool), fate: &Fate) {
        let client = self.number;
        let how = match fate {
            Fate::Released => {
                ctx.ledger.released(token);
                "released"
            }
            Fate::NotHeld => {
                ctx.ledger.not_held(ctx.now, token, !tried);
                "was not held"
            }
            Fate::Unsent => return self.again(ctx, id),
            Fate::Unanswered { why, .. } => {
                if let Some(What::Release { tried, .. }) = self.jobs.get_mut(&id).map(|job| &mut job.what) {
                    *tried = true;
                }
                match why {
                    Why::Overdue => "release unconfirmed",
                    Why::Moved => return self.again_later(ctx, id),
                    Why::Lost(_) => return self.again(ctx, id),
                }
            }
            Fate::Granted { .. } | Fate::TimedOut | Fate::Busy | Fate::Place { .. } => {
                return ctx.ledger.fail("Answer", format!("a release of {token} is told {fate:?}"));
            }
        };
        ctx.note(Line::Released { client, token, how });
        let Some(job) = self.jobs.remove(&id) else { return };
        self.over(ctx, job.caller, how);
    }

    fn again(&mut self, ctx: &mut Context, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.link = None;
            if job.caller.is_none() && matches!(job.what, What::Acquire { .. } | What::Place { .. }) {
                self.jobs.remove(&id);
                return;
            }
            self.choose(ctx, id);
        }
    }

    fn again_later(&mut self, ctx: &mut Context, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.link, job.rests) = (None, true);
            ctx.client_in(PAUSE, self.number, self.life, ClientEvent::Job(id));
        }
    }
}
