//! A server process: a node of the cluster, the real `Decider` over the real
//! `Replica`, and a small driver and sessions around them, cut as in the server.

mod driver;
mod office;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ticketing_engine::{Config, Decider, Fate, Nanos, Office, Place, Replica, Seq};

use crate::cluster::Raft;
use crate::context::Context;
use crate::events::Event;
use crate::ledger::Queues;
use crate::mutant::Mutant;
use crate::time::{Clock, SECOND, Time};
use session::Conn;
pub(crate) use session::address;

/// The process in a slot. When it ends, another one begins in its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) slot: u8,
    /// How many processes there were in this slot.
    pub(crate) life: u32,
    up: bool,
    /// Stopped by a signal: what comes meanwhile waits.
    pub(crate) paused: bool,
    pub(crate) deferred: Vec<Event>,
    /// 0: none yet.
    pub(crate) id: u64,
    clock: Clock,
    pub(crate) hash_seed: [u64; 2],
    pub(crate) raft: Raft,
    pub(crate) replica: Replica,
    pub(crate) saved: Option<Saved>,
    pub(crate) server: Server,
}

/// The applied state on disk.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) index: u64,
    pub(crate) table: Vec<u8>,
    /// How long its leases had been running, as the ledger counts them.
    pub(crate) ages: Vec<(u64, Time)>,
    pub(crate) place: Place,
}

/// What the driver of a process knows.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) decider: Decider,
    conns: BTreeMap<u64, Conn>,
    inbox: VecDeque<Inbox>,
    turn_is_due: bool,
    /// When the alarm for the engine rings.
    alarm_at: Time,
    /// The term in which its node leads, as far as the driver has heard.
    leads: Option<u64>,
    /// Whom it names when it is asked who leads.
    hint: Option<u8>,
    /// The last office that was proposed.
    last: Office,
    /// Whether its fate is still to come.
    asked: bool,
    /// Batches whose fate was not told to the engine.
    untold: BTreeSet<(Office, Seq)>,
    /// Tokens of batches of which the engine has not heard.
    unheard: BTreeMap<(Office, Seq), Vec<u64>>,
    /// Before these moments nothing could be done in time.
    in_office_since: Time,
    awake_since: Time,
    /// Who waits for what, as the ledger sees it.
    queues: Queues,
    pub(crate) draining: bool,
}

/// What waits for the driver's next turn.
#[derive(Debug)]
enum Inbox {
    Requests(u64, Vec<session::Asked>),
    Closed(u64),
    Lost(Vec<(u64, Box<[u8]>)>),
    Fate(Office, Seq, Fate),
    Drain,
}

impl Server {
    fn new(config: Config) -> Self {
        Self {
            decider: Decider::new(config),
            conns: BTreeMap::new(),
            inbox: VecDeque::new(),
            turn_is_due: false,
            alarm_at: Time::MAX,
            leads: None,
            hint: None,
            last: Office { term: 0, run: 0 },
            asked: false,
            untold: BTreeSet::new(),
            unheard: BTreeMap::new(),
            in_office_since: 0,
            awake_since: 0,
            queues: Queues::default(),
            draining: false,
        }
    }

    /// How many connections it has.
    pub(crate) fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Since when whatever is due could be done at once.
    fn ready(&self) -> Time {
        self.in_office_since.max(self.awake_since)
    }
}

impl Node {
    /// The first process in a slot, one of the founders.
    pub(crate) fn founder(ctx: &mut Context, slot: u8) -> Self {
        let hash_seed = [ctx.random.any(), ctx.random.any()];
        Self {
            slot,
            life: 1,
            up: true,
            paused: false,
            deferred: Vec::new(),
            id: u64::from(slot) + 1,
            clock: Self::new_clock(ctx),
            hash_seed,
            raft: Raft::default(),
            replica: Replica::new(hash_seed),
            saved: None,
            server: Server::new(Config { hash_seed, ..Config::default() }),
        }
    }

    /// A machine that has just booted, or has been up for years. A clock near zero
    /// could not tell when a lease began that is older than the machine.
    fn new_clock(ctx: &mut Context) -> Clock {
        let shown = ctx.random.between(1_000 * SECOND, 100_000_000 * SECOND);
        Clock::new(shown, ctx.now, ctx.plan.node_drift(&mut ctx.random))
    }

    /// The time of its own clock.
    pub(crate) fn local(&self, ctx: &Context) -> Nanos {
        self.clock.at(ctx.now)
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether it does anything now.
    pub(crate) const fn runs(&self) -> bool {
        self.up && !self.paused
    }

    /// The process is stopped by a signal, or goes on.
    pub(crate) fn pause(&mut self, ctx: &Context, paused: bool) {
        self.paused = paused;
        if !paused {
            self.server.awake_since = ctx.now;
        }
    }

    /// The process ends. What it had on disk stays.
    pub(crate) fn end(&mut self, ctx: &mut Context) {
        (self.up, self.paused) = (false, false);
        self.deferred.clear();
        self.life += 1;
        self.server = Server::new(Config { hash_seed: self.hash_seed, ..Config::default() });
        self.raft.leading = None;
        self.raft.leader = None;
        self.raft.waiting.clear();
        if !ctx.plan.durable {
            (self.raft, self.saved) = (Raft::default(), None);
            self.replica = Replica::new(self.hash_seed);
            if !ctx.plan.is(Mutant::BlankUnderOldId) {
                self.id = 0;
            }
        }
    }

    /// Another process begins in the slot: under the old id where a disk remembers it.
    pub(crate) fn begin(&mut self, ctx: &mut Context) {
        self.up = true;
        self.hash_seed = [ctx.random.any(), ctx.random.any()];
        // A process that was started again, or a machine.
        if ctx.random.chance(0.5) {
            self.clock = Self::new_clock(ctx);
        }
        self.server = Server::new(Config { hash_seed: self.hash_seed, ..Config::default() });
        self.server.awake_since = ctx.now;
        self.load(ctx);
        if self.id != 0 {
            ctx.members.seat(self.id, self.slot, self.life);
        }
    }

    /// Whether it may serve clients: a process that is not of the cluster yet may not.
    pub(crate) fn is_active(&self, ctx: &Context) -> bool {
        ctx.members.is_voter(self.id)
    }
}
