//! How each request ends: what its caller is told, and whether it is tried again.

use std::sync::Arc;

use ticketing::sans_io::{Fate, Why};
use ticketing_engine::Nanos;
use ticketing_history::Outcome;

use super::Client;
use super::jobs::{Claim, Job, VERIFY_TIMEOUT, What};
use crate::context::Context;
use crate::ledger::No;
use crate::mutant::Mutant;
use crate::time::MILLISECOND;
use crate::trace::Line;

impl Client {
    pub(super) fn fated(&mut self, ctx: &mut Context, id: u64, fate: &Fate) {
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
                Fate::Granted { .. } | Fate::TimedOut | Fate::Busy | Fate::Released | Fate::NotHeld => {
                    ctx.ledger.fail("Answer", format!("a question for a place is told {fate:?}"));
                }
                Fate::Place { .. } | Fate::Unsent => drop(self.jobs.remove(&id)),
            },
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
                    self.granted(ctx, (owner, lease_secs), &job, (token, ends_at), false);
                }
            }
            Fate::TimedOut | Fate::Busy => {
                let no = if matches!(fate, Fate::Busy) { No::Busy } else { No::TimedOut };
                let why = if no == No::Busy { "is busy" } else { "waits no longer" };
                ctx.ledger.refused(owner, no);
                ctx.note(Line::Refused { client, owner, why });
                let Some(job) = self.jobs.remove(&id) else { return };
                let outcome = if no == No::Busy { Outcome::Busy } else { Outcome::TimedOut };
                ctx.record.ends(ctx.now, job.op, outcome);
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
                ctx.record.ends(ctx.now, job.op, Outcome::Indeterminate);
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
        job: &Job,
        (token, mut ends_at): (u64, Nanos),
        verified: bool,
    ) {
        let local = self.local(ctx);
        if ctx.plan.is(Mutant::CountsFromAnswer) {
            ends_at = local + u64::from(lease_secs) * 995 * MILLISECOND;
        }
        let (key, caller) = (&job.key, job.caller);
        let taker = caller.filter(|_| local < ends_at);
        let left_ms = ends_at.saturating_sub(local) / MILLISECOND;
        ctx.note(Line::Granted { client: self.number, owner, token, left_ms, verified });
        let until = self.clock.when(ends_at);
        ctx.ledger.granted(ctx.now, owner, token, until, taker.is_some());
        let outcome = Outcome::Granted { token, ends: Some(until) };
        let given_back = if verified { Outcome::Indeterminate } else { Outcome::GivenBack };
        ctx.record.ends(ctx.now, job.op, if taker.is_some() { outcome } else { given_back });
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
                        self.granted(ctx, (owner, lease_secs), &job, (token, ends_at), true);
                    }
                    // The core has it and gives it back.
                    Some(_) | None => {
                        ctx.record.ends(ctx.now, job.op, Outcome::Indeterminate);
                        self.over(ctx, job.caller, "not acquired");
                    }
                }
            }
            Fate::Busy => {
                ctx.ledger.refused(owner, No::NotAcquired);
                ctx.note(Line::Refused { client, owner, why: "never will be granted" });
                let Some(job) = self.jobs.remove(&id) else { return };
                ctx.record.ends(ctx.now, job.op, Outcome::NotAcquired);
                self.over(ctx, job.caller, "not acquired");
            }
            Fate::Unanswered { why: Why::Overdue, .. } => {
                let Some(job) = self.jobs.get_mut(&id) else { return };
                ctx.record.ends(ctx.now, job.op, Outcome::Indeterminate);
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
        let (how, outcome) = match fate {
            Fate::Released => {
                ctx.ledger.released(token);
                ("released", Outcome::Released)
            }
            Fate::NotHeld => {
                ctx.ledger.not_held(ctx.now, token, !tried);
                ("was not held", Outcome::NotHeld { retried: tried })
            }
            Fate::Unsent => return self.again(ctx, id),
            Fate::Unanswered { why, .. } => {
                if let Some(What::Release { tried, .. }) = self.jobs.get_mut(&id).map(|job| &mut job.what) {
                    *tried = true;
                }
                match why {
                    Why::Overdue => ("release unconfirmed", Outcome::Indeterminate),
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
        ctx.record.ends(ctx.now, job.op, outcome);
        self.over(ctx, job.caller, how);
    }
}
