//! A run: all processes, the one queue of what will happen, and its end.

use crate::client::Client;
use crate::cluster::{self, Members};
use crate::context::Context;
use crate::events::{ClientEvent, Event, NodeEvent, Queue, WorldEvent};
use crate::ledger::Ledger;
use crate::mutant::Mutant;
use crate::network::{Arrival, Endpoint, Network, Side};
use crate::plan::Plan;
use crate::random::Random;
use crate::record::Record;
use crate::run::Outcome;
use crate::server::Node;
use crate::time::{MILLISECOND, MINUTE, SECOND, Time};
use crate::trace::{Line, Trace};

/// After the last fault: the longest wait, an overdue answer, a verify, a release.
const LONGEST_REQUEST: Time = (255 + 5 + 30 + 5 + 15) * SECOND;

/// A key that is free must be granted within that.
const PROBE: Time = 20 * SECOND;

/// The longest lease, and the time of a tombstone.
const LONGEST_MEMORY: Time = (600 + 60) * SECOND;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ctx: Context,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    over: bool,
}

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>, lines: usize) -> Self {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random, mutant);
        let network = Network::new(plan.nodes, plan.clients, plan.delay, plan.buffers);
        let mut ctx = Context {
            now: 0,
            queue: Queue::default(),
            random,
            network,
            members: Members::new(plan.nodes),
            ledger: Ledger::default(),
            record: Record::default(),
            trace: Trace::new(lines),
            calm: false,
            fair: false,
            quiet: false,
            burst: false,
            refusal: 0.0,
            plan,
        };
        let Plan { nodes, clients, durable, .. } = ctx.plan;
        ctx.note(Line::Began { nodes, clients, durable });
        let nodes = (0..nodes).map(|slot| Node::founder(&mut ctx, slot)).collect();
        let clients = (0..clients).map(|number| Client::new(&mut ctx, number)).collect();
        ctx.world_in(SECOND, WorldEvent::Elect);
        ctx.world_in(ctx.plan.fault_pause, WorldEvent::Fault);
        ctx.world_in(ctx.plan.faulty_for, WorldEvent::Calm);
        Self { ctx, nodes, clients, over: false }
    }

    /// Runs to the end, or to the first broken rule.
    pub(crate) fn run(mut self) -> Outcome {
        while self.ctx.ledger.broken().is_none() && self.step() {}
        let Context { now, queue, ledger, trace, .. } = &self.ctx;
        Outcome {
            simulated: std::time::Duration::from_nanos(*now),
            events: queue.pushed(),
            digest: trace.digest() ^ queue.pushed(),
            count: ledger.count,
            broken: ledger.broken().cloned(),
            trace: trace.lines(),
        }
    }

    /// Runs to the end, whatever the ledger says; returns what was broken as clients see it.
    #[cfg(feature = "seeded-faults")]
    pub(crate) fn run_for_clients(mut self) -> Vec<ticketing_history::Violation> {
        while self.step() {}
        self.ctx.record.violations()
    }

    /// Lets the next thing happen; false: it is over.
    fn step(&mut self) -> bool {
        if self.over {
            return false;
        }
        let Some((at, event)) = self.ctx.queue.pop() else { return false };
        self.ctx.now = at;
        self.dispatch(event);
        true
    }

    fn dispatch(&mut self, event: Event) {
        let Some(event) = self.unless_paused(event) else { return };
        let ctx = &mut self.ctx;
        match event {
            Event::Node { slot, life, what } => {
                let Some(node) = self.nodes.get_mut(usize::from(slot)) else { return };
                if node.is_up() && node.life == life {
                    let promotes = matches!(what, NodeEvent::Peer(_)) && !ctx.members.learners.is_empty();
                    node_event(ctx, node, what);
                    if promotes {
                        cluster::promote(ctx, &mut self.nodes);
                    }
                }
            }
            Event::Client { client, life, what } => {
                let Some(it) = self.clients.get_mut(usize::from(client)) else { return };
                if it.up && it.life == life {
                    self.client_event(client, what);
                }
            }
            Event::Arrives { conn, to } => self.arrives(conn, to),
            Event::Writable { conn, side } => {
                let Some((client, link, slot)) = self.ends(conn) else { return };
                match side {
                    Side::Client => self.with_client(client, |ctx, client| client.writable(ctx, link, conn)),
                    Side::Server => self.with_node(slot, |ctx, node| node.flush(ctx, conn)),
                }
            }
            Event::Doomed { conn, side } => {
                if ctx.network.is_doomed(ctx.now, conn) {
                    self.ended(conn, side);
                }
            }
            Event::World(what) => self.world_event(what),
        }
    }

    /// The process that an event is for, if it is stopped, gets it when it goes on.
    fn unless_paused(&mut self, event: Event) -> Option<Event> {
        let endpoint = match &event {
            Event::Node { slot, .. } => Endpoint::Node(*slot),
            Event::Client { client, .. } => Endpoint::Client(*client),
            Event::Arrives { conn, to: side }
            | Event::Writable { conn, side }
            | Event::Doomed { conn, side } => {
                let conn = self.ctx.network.conn(*conn)?;
                match side {
                    Side::Client => Endpoint::Client(conn.client),
                    Side::Server => Endpoint::Node(conn.slot),
                }
            }
            Event::World(_) => return Some(event),
        };
        let (paused, deferred) = match endpoint {
            Endpoint::Node(slot) => {
                let node = self.nodes.get_mut(usize::from(slot))?;
                (node.paused, &mut node.deferred)
            }
            Endpoint::Client(number) => {
                let client = self.clients.get_mut(usize::from(number))?;
                (client.paused, &mut client.deferred)
            }
        };
        if paused {
            deferred.push(event);
            return None;
        }
        Some(event)
    }

    fn ends(&self, conn: u64) -> Option<(u8, u8, u8)> {
        self.ctx.network.conn(conn).map(|conn| (conn.client, conn.link, conn.slot))
    }

    pub(crate) fn with_node(&mut self, slot: u8, act: impl FnOnce(&mut Context, &mut Node)) {
        if let Some(node) = self.nodes.get_mut(usize::from(slot)) {
            act(&mut self.ctx, node);
        }
    }

    pub(crate) fn with_client(&mut self, number: u8, act: impl FnOnce(&mut Context, &mut Client)) {
        if let Some(client) = self.clients.get_mut(usize::from(number)) {
            act(&mut self.ctx, client);
        }
    }

    fn arrives(&mut self, id: u64, to: Side) {
        let Context { now, queue, network, .. } = &mut self.ctx;
        match network.arrive(*now, queue, id, to) {
            None => {}
            Some(Arrival::End) => self.ended(id, to),
            Some(Arrival::Bytes(bytes)) => {
                let Some((client, link, slot)) = self.ends(id) else { return };
                match to {
                    Side::Client => {
                        self.with_client(client, |ctx, client| client.read(ctx, link, id, &bytes));
                    }
                    Side::Server => self.with_node(slot, |ctx, node| node.read(ctx, id, &bytes)),
                }
            }
        }
    }

    /// One end learns that the connection is over.
    pub(crate) fn ended(&mut self, id: u64, side: Side) {
        let Some((client, link, slot)) = self.ends(id) else { return };
        match side {
            Side::Client => self.with_client(client, |ctx, client| client.ended(ctx, link, id)),
            Side::Server => self.with_node(slot, |ctx, node| node.hang_up(ctx, id)),
        }
        self.ctx.network.give_up(id, side);
    }

    fn client_event(&mut self, number: u8, what: ClientEvent) {
        match what {
            ClientEvent::Connect(link) => self.connect(number, link),
            ClientEvent::Alarm(link) => self.with_client(number, |ctx, client| client.alarm(ctx, link)),
            ClientEvent::Job(job) => self.with_client(number, |ctx, client| client.job(ctx, job)),
            ClientEvent::Worker(worker, step) => {
                self.with_client(number, |ctx, client| client.work(ctx, worker, step));
            }
            ClientEvent::GiveUp(worker, job) => {
                self.with_client(number, |ctx, client| client.impatient(ctx, worker, job));
            }
        }
    }

    /// A client opens a connection, if it can.
    fn connect(&mut self, number: u8, link: u8) {
        let (Some(client), Some(node)) =
            (self.clients.get_mut(usize::from(number)), self.nodes.get_mut(usize::from(link)))
        else {
            return;
        };
        let ctx = &mut self.ctx;
        let (this, other) = (Endpoint::Client(number), Endpoint::Node(link));
        if !client.wants(link) {
            return;
        }
        if !ctx.network.connected(this, other) || node.paused {
            return client.not_connected(ctx, link, 5 * SECOND);
        }
        let delay = ctx.network.delay(&mut ctx.random, this, other);
        if !node.is_up() {
            return client.not_connected(ctx, link, delay);
        }
        if !node.is_active(ctx) {
            // So the server says after half a second.
            return client.not_connected(ctx, link, 500 * MILLISECOND + delay);
        }
        let conn = ctx.network.open(&mut ctx.random, (number, link), link);
        client.connected(ctx, link, conn);
        node.accept(ctx, conn);
    }

    fn world_event(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::Fault => self.fault(),
            WorldEvent::Repair(repair) => self.repair(repair),
            WorldEvent::Elect => {
                if cluster::leader(&self.ctx, &self.nodes).is_none() {
                    cluster::elect(&mut self.ctx, &mut self.nodes);
                }
            }
            WorldEvent::Depose => {
                if !self.ctx.calm {
                    cluster::elect(&mut self.ctx, &mut self.nodes);
                }
            }
            WorldEvent::Resync => {
                for node in self.nodes.iter_mut().filter(|node| node.runs()) {
                    node.resync(&mut self.ctx);
                }
            }
            WorldEvent::Join(slot) => self.join(slot),
            WorldEvent::Burst(on) => {
                self.ctx.burst = on;
                self.ctx.note(Line::Burst(on));
                for client in self.clients.iter_mut().filter(|client| client.runs() && on) {
                    client.hurry(&mut self.ctx);
                }
            }
            WorldEvent::Calm => {
                self.calm_down();
                self.ctx.world_in(MINUTE, WorldEvent::Fair);
                self.ctx.world_in(3 * MINUTE, WorldEvent::Quiet);
            }
            WorldEvent::Fair => self.ctx.fair = !self.ctx.ledger.is_over,
            WorldEvent::Quiet => {
                self.ctx.quiet = true;
                for client in &mut self.clients {
                    client.calm_down(&mut self.ctx);
                }
                self.ctx.world_in(LONGEST_REQUEST, WorldEvent::Settled);
            }
            WorldEvent::Settled => {
                self.check_that_all_is_settled();
                for client in &mut self.clients {
                    client.ask_whether_all_is_well(&mut self.ctx);
                }
                self.ctx.world_in(PROBE, WorldEvent::Probed);
            }
            WorldEvent::Probed => {
                self.check_probes();
                self.ctx.world_in(LONGEST_MEMORY, WorldEvent::End);
            }
            WorldEvent::End => {
                if self.clients.iter().any(|client| client.up) {
                    for number in 0..self.ctx.plan.clients {
                        self.end_client(number, false);
                    }
                    self.ctx.world_in(15 * SECOND, WorldEvent::End);
                } else {
                    self.check_that_nothing_is_left();
                    self.ctx.record.judge(&mut self.ctx.ledger);
                    self.over = true;
                }
            }
        }
    }

    /// A process without an id asks whoever leads for one.
    fn join(&mut self, slot: u8) {
        let ctx = &mut self.ctx;
        let leader = cluster::leader(ctx, &self.nodes);
        let Some(node) = self.nodes.get_mut(usize::from(slot)) else { return };
        if !node.is_up() || node.id != 0 {
            return;
        }
        let link = leader.and_then(|index| u8::try_from(index).ok()).filter(|&leader| {
            ctx.network.connected(Endpoint::Node(slot), Endpoint::Node(leader)) && !node.paused
        });
        let Some(leader) = link else {
            let pause = ctx.random.between(300 * MILLISECOND, 2 * SECOND);
            return ctx.world_in(pause, WorldEvent::Join(slot));
        };
        node.id = ctx.members.admit(slot, node.life);
        let learner = node.id;
        self.with_node(leader, |ctx, leader| leader.teach(ctx, learner));
    }
}

fn node_event(ctx: &mut Context, node: &mut Node, what: NodeEvent) {
    match what {
        NodeEvent::Peer(message) => node.hear(ctx, *message),
        NodeEvent::Leads => node.look(ctx),
        NodeEvent::Propose(command) => node.propose(ctx, *command),
        NodeEvent::Fate { office, seq, fate } => node.fate(ctx, office, seq, fate),
        NodeEvent::Patience { office, seq } => node.out_of_patience(ctx, office, seq),
        NodeEvent::Office { office, begun } => node.office(ctx, office, begun),
        NodeEvent::Turn => node.turn(ctx),
        NodeEvent::Alarm => node.alarm(ctx),
        NodeEvent::KeepAlive(conn) => node.keep_alive(ctx, conn),
    }
}
