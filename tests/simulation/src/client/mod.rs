//! A client process: the real session for each connection, a small broker around
//! them that chooses and tries again as the real one does, and workers who want locks.

mod broker;
mod fates;
mod jobs;
mod workers;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ticketing::sans_io::{Fate, Reply, Request};
use ticketing_engine::Nanos;

use crate::context::Context;
use crate::events::Event;
use crate::time::{Clock, SECOND, Time};
use broker::Link;
use jobs::{Claim, Job};
use workers::Worker;

/// The fates that sessions have told, with the jobs that they are of.
type Told = Rc<RefCell<VecDeque<(u64, Fate)>>>;

/// Whoever waits for the fate of a request.
#[derive(Debug)]
struct Caller {
    job: u64,
    told: Told,
}

impl Reply for Caller {
    fn tell(&mut self, _: &Request, fate: Fate) {
        self.told.borrow_mut().push_back((self.job, fate));
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u8,
    /// How many processes there were in its place.
    pub(crate) life: u32,
    pub(crate) up: bool,
    /// Stopped by a signal: what comes meanwhile waits.
    pub(crate) paused: bool,
    pub(crate) deferred: Vec<Event>,
    clock: Clock,
    /// One to each node.
    links: Vec<Link>,
    /// How many words about the leader have come.
    words: u64,
    /// Whoever was named last.
    leader: Option<Box<str>>,
    turn: usize,
    jobs: BTreeMap<u64, Job>,
    told: Told,
    next_job: u64,
    next_owner: u64,
    /// Acquires without an answer: who may take a grant that comes after all.
    claims: BTreeMap<u64, Claim>,
    workers: Vec<Worker>,
    pub(crate) probe: Option<&'static str>,
}

impl Client {
    pub(crate) fn new(ctx: &mut Context, number: u8) -> Self {
        let workers = ctx.plan.workers;
        let mut client = Self {
            number,
            life: 0,
            up: false,
            paused: false,
            deferred: Vec::new(),
            clock: Clock::new(0, 0, 0),
            links: Vec::new(),
            words: 0,
            leader: None,
            turn: 0,
            jobs: BTreeMap::new(),
            told: Told::default(),
            next_job: 1,
            // As unlikely bytes as there are: line feeds among them.
            next_owner: (u64::from(number) << 40) + 0x0a0a_0000,
            claims: BTreeMap::new(),
            workers: vec![Worker::default(); usize::from(workers)],
            probe: None,
        };
        client.begin(ctx);
        client
    }

    pub(crate) const fn who(&self) -> (u8, u32) {
        (self.number, self.life)
    }

    pub(crate) const fn runs(&self) -> bool {
        self.up && !self.paused
    }

    /// The time of its own clock.
    fn local(&self, ctx: &Context) -> Nanos {
        self.clock.at(ctx.now)
    }

    /// A process begins.
    pub(crate) fn begin(&mut self, ctx: &mut Context) {
        self.up = true;
        self.life += 1;
        let shown = ctx.random.between(3_600 * SECOND, 100_000_000 * SECOND);
        self.clock = Clock::new(shown, ctx.now, ctx.plan.client_drift(&mut ctx.random));
        self.links = (0..ctx.plan.nodes).map(Link::new).collect();
        for link in 0..ctx.plan.nodes {
            let pause = ctx.random.between(0, SECOND);
            self.connect_in(ctx, pause, link);
        }
        for worker in 0..ctx.plan.workers {
            self.think(ctx, worker);
        }
    }

    /// The process ends; what it held nobody acts on any more.
    pub(crate) fn end(&mut self, ctx: &mut Context) {
        ctx.ledger.died(ctx.now, self.who());
        ctx.record.died(ctx.now, self.who());
        (self.up, self.paused) = (false, false);
        self.deferred.clear();
        // Late events are of an earlier life.
        self.life += 1;
        self.links.clear();
        self.jobs.clear();
        self.claims.clear();
        self.told.borrow_mut().clear();
        self.leader = None;
        self.workers.fill(Worker::default());
    }

    /// Whether nobody waits for anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.values().all(|job| !job.is_awaited()) && self.workers.iter().all(Worker::is_idle)
    }

    /// When its clock shows `local`.
    fn pause_until(&self, ctx: &Context, local: Nanos) -> Time {
        self.clock.when(local).saturating_sub(ctx.now)
    }
}
