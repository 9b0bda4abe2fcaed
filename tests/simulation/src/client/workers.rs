//! Who wants locks: users of a client, each with one wish at a time.

use std::sync::Arc;

use super::Client;
use crate::context::Context;
use crate::events::ClientEvent;
use crate::time::{MILLISECOND, SECOND, Time};

#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    state: State,
    /// Counts what it has begun: events of earlier steps are void.
    step: u32,
}

#[derive(Clone, Debug, Default)]
enum State {
    /// Thinks of what to want next.
    #[default]
    Thinking,
    Asking {
        job: u64,
    },
    Holding {
        key: Arc<str>,
        token: u64,
    },
    /// Waits until the lock is given back.
    Releasing,
    /// Asks whether all is well, at the end of a run.
    Probing,
}

impl Worker {
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Thinking)
    }
}

impl Client {
    fn state(&self, worker: u8) -> Option<&State> {
        self.workers.get(usize::from(worker)).map(|worker| &worker.state)
    }

    fn enter(&mut self, worker: u8, state: State) {
        if let Some(worker) = self.workers.get_mut(usize::from(worker)) {
            *worker = Worker { state, step: worker.step + 1 };
        }
    }

    fn wake_in(&self, ctx: &mut Context, pause: Time, worker: u8) {
        let Some(step) = self.workers.get(usize::from(worker)).map(|worker| worker.step) else { return };
        ctx.client_in(pause, self.number, self.life, ClientEvent::Worker(worker, step));
    }

    /// A worker has nothing to do for a while.
    pub(super) fn think(&mut self, ctx: &mut Context, worker: u8) {
        let mean = if ctx.burst { 20 * MILLISECOND } else { ctx.plan.think };
        self.think_about(ctx, worker, mean);
    }

    fn think_about(&mut self, ctx: &mut Context, worker: u8, mean: Time) {
        self.enter(worker, State::Thinking);
        if !ctx.quiet {
            let pause = ctx.random.around(mean);
            self.wake_in(ctx, pause, worker);
        }
    }

    /// A worker goes on.
    pub(crate) fn work(&mut self, ctx: &mut Context, number: u8, step: u32) {
        let worker = self.workers.get(usize::from(number)).filter(|worker| worker.step == step);
        match worker.map(|worker| worker.state.clone()) {
            Some(State::Thinking) if !ctx.quiet => self.ask(ctx, number),
            // Some forget to give it back.
            Some(State::Holding { .. }) if ctx.random.chance(0.15) => self.think(ctx, number),
            Some(State::Holding { key, token }) => {
                self.enter(number, State::Releasing);
                self.release(ctx, key, token, Some(number));
            }
            Some(State::Thinking | State::Asking { .. } | State::Releasing | State::Probing) | None => {}
        }
        self.go_on(ctx);
    }

    fn ask(&mut self, ctx: &mut Context, number: u8) {
        let keys = ctx.plan.keys.clone();
        // In haste all want the same.
        let index = if ctx.burst && ctx.random.chance(0.8) { 0 } else { ctx.random.index(keys.len()) };
        let Some(key) = keys.get(index) else { return };
        let usual = if ctx.burst { 3 } else { ctx.plan.usual_secs };
        let secs = |ctx: &mut Context, usual: u64, most: u64| {
            let most = if ctx.random.chance(0.05) { most } else { usual.min(most) };
            u8::try_from(ctx.random.between(1, most)).unwrap_or(1)
        };
        let lease = secs(ctx, usual, 250);
        let wait = if ctx.random.chance(0.1) { 0 } else { secs(ctx, 3 * usual, 255) };
        let job = self.next_job;
        self.enter(number, State::Asking { job });
        self.acquire(ctx, number, key, (wait, lease));
        if wait > 0 && ctx.random.chance(0.1) {
            self.place(ctx, job);
        }
        if wait > 0 && ctx.random.chance(0.15) {
            let pause = ctx.random.between(0, u64::from(wait) * SECOND);
            ctx.client_in(pause, self.number, self.life, ClientEvent::GiveUp(number, job));
        }
    }

    /// A worker loses patience with this job, if it is still about it.
    pub(crate) fn impatient(&mut self, ctx: &mut Context, number: u8, job: u64) {
        let about_it = matches!(self.state(number), Some(State::Asking { job: current }) if *current == job);
        if about_it && self.give_up(ctx, job) {
            self.think(ctx, number);
            self.go_on(ctx);
        }
    }

    /// A worker holds a lock now.
    pub(super) fn holds(
        &mut self,
        ctx: &mut Context,
        number: u8,
        (key, token): (Arc<str>, u64),
        lease_secs: u8,
    ) {
        if matches!(self.state(number), Some(State::Probing)) {
            self.probe = Some("granted");
        }
        self.enter(number, State::Holding { key, token });
        // Some hold on to it for longer than they may.
        let lease = u64::from(lease_secs) * SECOND;
        let hold = match (ctx.quiet, ctx.burst) {
            (true, _) => MILLISECOND,
            (false, true) => ctx.random.around(10 * MILLISECOND),
            (false, false) => ctx.random.between(0, lease * 6 / 5),
        };
        self.wake_in(ctx, hold, number);
    }

    /// A worker's request is over.
    pub(super) fn finished(&mut self, ctx: &mut Context, number: u8, how: &'static str) {
        if matches!(self.state(number), Some(State::Probing)) {
            self.probe = Some(how);
        }
        match how {
            // It would only be refused again.
            "is busy" | "not connected" => self.think_about(ctx, number, ctx.plan.think.max(SECOND)),
            _ => self.think(ctx, number),
        }
    }

    /// A time of haste begins: who thinks has thought enough.
    pub(crate) fn hurry(&mut self, ctx: &mut Context) {
        for number in 0..ctx.plan.workers {
            if matches!(self.state(number), Some(State::Thinking)) {
                let pause = ctx.random.between(0, 100 * MILLISECOND);
                self.wake_in(ctx, pause, number);
            }
        }
    }

    /// No more wishes; what is held is given back.
    pub(crate) fn calm_down(&mut self, ctx: &mut Context) {
        for number in 0..ctx.plan.workers {
            if matches!(self.state(number), Some(State::Holding { .. })) {
                let pause = ctx.random.between(0, SECOND);
                self.wake_in(ctx, pause, number);
            }
        }
    }

    /// One more wish, for a key of its own, which must come true if any can.
    pub(crate) fn ask_whether_all_is_well(&mut self, ctx: &mut Context) {
        self.probe = None;
        self.enter(0, State::Probing);
        let key = format!("probe-{}", self.number).into();
        self.acquire(ctx, 0, &key, (5, 5));
        self.go_on(ctx);
    }
}
