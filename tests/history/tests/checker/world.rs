//! Clients, a network and a service in virtual time: every history is one that a
//! correct service can have, unless it has a bug.
//!
//! Messages of one connection keep their order and may take long. Connections end
//! with requests and answers on the way. Leaders die, and for a while nobody decides
//! anything. Clients forget locks, release twice, cancel, verify, and are killed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_history::{Call, Event, History, Lane, Nanos, Note, Op, Outcome, Returned, Rules, SECOND};

use crate::service::{Act, Bug, Service, Waiter, claimed_end};

pub(crate) const MS: Nanos = 1_000_000;

/// What a history is made from; all of it is drawn from the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) turns: usize,
    /// The longest way of a message.
    pub(crate) delay: Nanos,
    /// The longest time without a leader; 0: leaders do not die.
    pub(crate) outage: Nanos,
    /// Chance, in a thousandth a turn, that something is cut, killed or restarted.
    pub(crate) trouble: u32,
    /// Whether a restart may forget who holds what.
    pub(crate) forgets: bool,
}

impl Setting {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        Self {
            seed,
            bug: None,
            clients: random.random_range(1..=5),
            keys: random.random_range(1..=3),
            turns: random.random_range(20..=60),
            delay: [MS, 20 * MS, 400 * MS][random.random_range(0..3)],
            outage: [0, 0, SECOND, 4 * SECOND][random.random_range(0..4)],
            trouble: [0, 10, 40][random.random_range(0..3)],
            forgets: random.random_ratio(1, 4),
        }
    }

    /// As tight as the setting allows.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            // There and back, and once more for a release that is sent again.
            late_answer: Some(4 * self.delay),
            late_expiry: Some(self.outage + SLACK),
            busy: self.outage > 0,
            dense: true,
            drift_ppm: 0,
        }
    }

    pub(crate) fn run(self) -> History {
        World::new(self).run()
    }
}

/// The longest time after which a service notices that a lease is over.
const SLACK: Nanos = 200 * MS;

#[derive(Clone, Copy, Debug)]
enum Ask {
    Acquire,
    Release(u64),
    Verify(usize),
    Cancel,
    Place,
    /// Of a token that came for nobody: no operation of the history.
    GiveBack(u64),
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Turn(usize),
    Arrive { connection: usize, op: usize, ask: Ask },
    Answer { connection: usize, op: usize, outcome: Outcome },
    Place { connection: usize, op: usize },
    Wait(usize, usize),
    Lease(usize, u64),
    Gone(usize),
    Up,
}

struct Connection {
    client: usize,
    sent: u64,
    /// When the last message on its way arrives, to the service and back.
    there: Nanos,
    back: Nanos,
    open: bool,
    known_gone: bool,
    /// What was under way to the service when it was cut still arrives.
    delivers: bool,
}

#[derive(Default)]
struct Client {
    connections: Vec<usize>,
    tickets: Vec<(usize, u64)>,
    old: Vec<(usize, u64)>,
    turns: usize,
    dead: bool,
}

struct World {
    setting: Setting,
    random: StdRng,
    service: Service,
    now: Nanos,
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
    happenings: Vec<Happening>,
    connections: Vec<Connection>,
    clients: Vec<Client>,
    up_at: Nanos,
    history: History,
    /// Beside each operation: its connection, and whether its release was sent before.
    sent: Vec<(usize, bool)>,
}

impl World {
    fn new(setting: Setting) -> Self {
        let mut world = Self {
            setting,
            random: StdRng::seed_from_u64(setting.seed ^ 0x5eed),
            service: Service::new(setting.keys, setting.seed, SLACK, setting.bug),
            now: 1000 * SECOND,
            heap: BinaryHeap::new(),
            happenings: Vec::new(),
            connections: Vec::new(),
            clients: (0..setting.clients)
                .map(|_| Client { turns: setting.turns, ..Client::default() })
                .collect(),
            up_at: 0,
            history: History::default(),
            sent: Vec::new(),
        };
        for client in 0..setting.clients {
            let connections = (0..world.random.random_range(1..=2)).map(|_| world.connect(client)).collect();
            world.clients[client].connections = connections;
            world.later(0, Happening::Turn(client));
        }
        world
    }

    fn run(mut self) -> History {
        while let Some(Reverse((at, number))) = self.heap.pop() {
            self.now = at;
            let happening = self.happenings[usize::try_from(number).unwrap()];
            self.happen(happening);
            self.carry_out();
        }
        let end =
            Note { from: self.now + 10_000 * SECOND, to: self.now + 10_000 * SECOND, event: Event::End };
        self.history.notes.push(end);
        self.history
    }

    fn later(&mut self, after: Nanos, happening: Happening) {
        self.heap.push(Reverse((self.now + after, self.happenings.len() as u64)));
        self.happenings.push(happening);
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.random.random_ratio(thousandths, 1000)
    }

    fn connect(&mut self, client: usize) -> usize {
        let delivers = self.random.random();
        let connection =
            Connection { client, sent: 0, there: 0, back: 0, open: true, known_gone: false, delivers };
        self.connections.push(connection);
        self.connections.len() - 1
    }

    fn send(&mut self, connection: usize, op: usize, ask: Ask) {
        let arrival = self.now + self.random.random_range(0..=self.setting.delay);
        let there = &mut self.connections[connection].there;
        *there = arrival.max(*there);
        let after = *there - self.now;
        self.later(after, Happening::Arrive { connection, op, ask });
    }

    fn answer(&mut self, connection: usize, happening: Happening) {
        let arrival = self.now + self.random.random_range(0..=self.setting.delay);
        let back = &mut self.connections[connection].back;
        *back = arrival.max(*back);
        let after = *back - self.now;
        self.later(after, happening);
    }

    fn invoke(&mut self, connection: usize, key: usize, call: Call, ask: Ask) -> usize {
        let op = self.history.ops.len();
        let place = &mut self.connections[connection];
        place.sent += 1;
        let lane = Some(Lane { connection: connection as u64, order: place.sent });
        let process = place.client as u64;
        let key = format!("key-{key}");
        let (id, invoked) = (op as u64, self.now);
        self.history.ops.push(Op { id, process, lane, key, call, invoked, returned: None });
        self.sent.push((connection, false));
        self.send(connection, op, ask);
        op
    }

    fn key(&self, op: usize) -> usize {
        self.history.ops[op].key["key-".len()..].parse().unwrap()
    }

    fn end(&mut self, op: usize, outcome: Outcome) {
        self.history.ops[op].returned = Some(Returned { at: self.now, outcome });
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Turn(client) => self.turn(client),
            Happening::Arrive { connection, op, ask } => self.arrive(connection, op, ask),
            Happening::Answer { connection, op, outcome } => self.receive(connection, op, outcome),
            Happening::Place { connection, op } => {
                if self.connections[connection].open
                    && let Call::Acquire { queued, .. } = &mut self.history.ops[op].call
                {
                    queued.get_or_insert(self.now);
                }
            }
            Happening::Wait(key, op) => self.service.wait_is_over(key, op),
            Happening::Lease(key, token) if self.is_down() => {
                self.later(self.up_at - self.now, Happening::Lease(key, token));
            }
            Happening::Lease(key, token) => self.service.lease_is_over(self.now, key, token),
            Happening::Gone(connection) => {
                self.connections[connection].known_gone = true;
                self.service.gone(connection);
            }
            Happening::Up => self.service.take_office(),
        }
    }

    fn is_down(&self) -> bool {
        self.now < self.up_at
    }

    fn arrive(&mut self, connection: usize, op: usize, ask: Ask) {
        let place = &self.connections[connection];
        if place.known_gone || !place.open && !place.delivers {
            return;
        }
        let key = self.key(op);
        if self.is_down() {
            if matches!(ask, Ask::Acquire) && self.random.random() {
                self.answer(connection, Happening::Answer { connection, op, outcome: Outcome::Busy });
            } else {
                self.cut(connection);
            }
            return;
        }
        let outcome = match ask {
            Ask::Acquire => {
                let Call::Acquire { wait_secs, lease_secs, .. } = self.history.ops[op].call else { panic!() };
                let (wait, lease) = (u64::from(wait_secs) * SECOND, u64::from(lease_secs) * SECOND);
                let waiter = Waiter { op, connection, arrived: self.now, wait, lease };
                return self.service.acquire(self.now, key, waiter);
            }
            Ask::Cancel => return self.service.cancel(key, op),
            Ask::GiveBack(token) => {
                self.service.release(self.now, key, token);
                return;
            }
            Ask::Place => {
                if self.service.place(key, op).is_some() {
                    self.answer(connection, Happening::Place { connection, op });
                }
                return;
            }
            Ask::Release(token) if self.service.release(self.now, key, token) => Outcome::Released,
            Ask::Release(_) => Outcome::NotHeld { retried: self.sent[op].1 },
            Ask::Verify(of) => match self.service.verify(key, of) {
                Some(token) => Outcome::Granted { token, ends: None },
                None => Outcome::NotAcquired,
            },
        };
        self.answer(connection, Happening::Answer { connection, op, outcome });
    }

    fn carry_out(&mut self) {
        while !self.service.acts.is_empty() {
            for act in std::mem::take(&mut self.service.acts) {
                match act {
                    Act::Granted { waiter, key, token } => self.granted(waiter, key, token),
                    Act::TimedOut(Waiter { connection, op, .. }) => {
                        self.answer(
                            connection,
                            Happening::Answer { connection, op, outcome: Outcome::TimedOut },
                        );
                    }
                    Act::Busy(Waiter { connection, op, .. }) => {
                        self.answer(connection, Happening::Answer { connection, op, outcome: Outcome::Busy });
                    }
                    Act::WakeWait(at, key, op) => self.later(at - self.now, Happening::Wait(key, op)),
                    Act::WakeLease(at, key, token) => self.later(at - self.now, Happening::Lease(key, token)),
                }
            }
        }
    }

    fn granted(&mut self, waiter: Waiter, key: usize, token: u64) {
        let Waiter { op, connection, arrived, lease, .. } = waiter;
        if !self.connections[connection].open && self.random.random() {
            return self.service.undelivered(self.now, key, token);
        }
        let sent = self.history.ops[op].invoked;
        let known = self.random.random::<bool>() || self.service.bug == Some(Bug::ClientCountsFromReceipt);
        let ends = known.then(|| {
            claimed_end(self.service.bug, sent, self.now + self.setting.delay, self.now - arrived, lease)
        });
        let outcome = Outcome::Granted { token, ends };
        self.answer(connection, Happening::Answer { connection, op, outcome });
    }

    fn receive(&mut self, connection: usize, op: usize, outcome: Outcome) {
        let place = &self.connections[connection];
        if !place.open {
            return;
        }
        let (client, key) = (place.client, self.key(op));
        match (outcome, self.history.ops[op].outcome()) {
            (Outcome::Granted { token, .. }, Some(Outcome::GivenBack)) => {
                self.send(connection, op, Ask::GiveBack(token));
            }
            (_, Some(_)) => {}
            (Outcome::Granted { token, .. }, None) if self.chance(20) => {
                if matches!(self.history.ops[op].call, Call::Acquire { .. }) {
                    self.send(connection, op, Ask::GiveBack(token));
                    self.end(op, Outcome::GivenBack);
                } else {
                    self.end(op, Outcome::Indeterminate);
                }
            }
            (Outcome::Granted { token, .. }, None) => {
                self.clients[client].tickets.push((key, token));
                self.end(op, outcome);
            }
            (_, None) => self.end(op, outcome),
        }
    }

    fn turn(&mut self, client: usize) {
        if self.clients[client].dead || self.clients[client].turns == 0 {
            return;
        }
        self.clients[client].turns -= 1;
        let pause = [10 * MS, 100 * MS, 500 * MS, 2 * SECOND][self.random.random_range(0..4)];
        let pause = self.random.random_range(0..=pause);
        self.later(pause, Happening::Turn(client));
        let connections = &self.clients[client].connections;
        let connection = connections[self.random.random_range(0..connections.len())];
        match self.random.random_range(0..10) {
            0..=3 => self.ask(connection),
            4..=6 => self.let_go(client, connection),
            7 => self.meddle(client, connection),
            8 => self.clear_up(client, connection),
            _ => {}
        }
        if self.chance(self.setting.trouble) {
            self.trouble(client, connection);
        }
    }

    fn ask(&mut self, connection: usize) {
        for _ in 0..self.random.random_range(1..=3) {
            let key = self.random.random_range(0..self.setting.keys);
            let wait = [0, 1, 2, 8][self.random.random_range(0..4)];
            let lease = [1, 2, 5, 30][self.random.random_range(0..4)];
            self.invoke(connection, key, Call::acquire(wait, lease), Ask::Acquire);
        }
    }

    fn let_go(&mut self, client: usize, connection: usize) {
        let tickets = self.clients[client].tickets.len();
        if tickets == 0 {
            return;
        }
        let (key, token) = self.clients[client].tickets.swap_remove(self.random.random_range(0..tickets));
        if self.chance(100) {
            return;
        }
        let release = self.invoke(connection, key, Call::Release { token }, Ask::Release(token));
        if self.chance(100) {
            self.end(release, Outcome::Indeterminate);
        }
        if self.chance(100) {
            self.invoke(connection, key, Call::Release { token }, Ask::Release(token));
        }
        self.clients[client].old.push((key, token));
    }

    /// Releases what it holds no longer or never did.
    fn meddle(&mut self, client: usize, connection: usize) {
        let old = self.clients[client].old.len();
        let (key, token) = if old > 0 && self.random.random() {
            self.clients[client].old[self.random.random_range(0..old)]
        } else {
            (self.random.random_range(0..self.setting.keys), self.random.random_range(1..1000))
        };
        self.invoke(connection, key, Call::Release { token }, Ask::Release(token));
    }

    /// Asks about acquires that are under way or unknown.
    fn clear_up(&mut self, client: usize, connection: usize) {
        for op in 0..self.history.ops.len() {
            let it = &mut self.history.ops[op];
            let (there, _) = self.sent[op];
            let Call::Acquire { cancelled, .. } = &mut it.call else { continue };
            if it.process != client as u64 || !self.random.random_ratio(1, 3) {
                continue;
            }
            match it.returned.map(|returned| returned.outcome) {
                None if self.connections[there].open => match self.random.random_range(0..3) {
                    0 => {
                        *cancelled = true;
                        self.send(there, op, Ask::Cancel);
                    }
                    1 => self.send(there, op, Ask::Place),
                    _ => {
                        self.end(op, Outcome::GivenBack);
                        self.send(there, op, Ask::Cancel);
                    }
                },
                Some(Outcome::Indeterminate) => {
                    let (key, of) = (self.key(op), op as u64);
                    self.invoke(connection, key, Call::Verify { of }, Ask::Verify(op));
                }
                _ => {}
            }
        }
    }

    fn trouble(&mut self, client: usize, connection: usize) {
        match self.random.random_range(0..6) {
            0..=2 => self.cut(connection),
            3 if self.setting.outage > 0 && !self.is_down() => self.lose_leader(),
            4 if self.setting.forgets => self.restart(),
            5 => self.kill(client),
            _ => {}
        }
    }

    fn note(&mut self, event: Event) {
        self.history.notes.push(Note { from: self.now, to: self.now, event });
    }

    /// The client sees the end of the connection now, the service some time later.
    fn cut(&mut self, connection: usize) {
        if !std::mem::replace(&mut self.connections[connection].open, false) {
            return;
        }
        let later = self.random.random_range(0..=3 * self.setting.delay);
        self.later(later, Happening::Gone(connection));
        let client = self.connections[connection].client;
        let new = self.connect(client);
        for there in &mut self.clients[client].connections {
            if *there == connection {
                *there = new;
            }
        }
        for op in 0..self.sent.len() {
            if self.sent[op].0 != connection
                || self.history.ops[op].returned.is_some()
                || self.clients[client].dead
            {
                continue;
            }
            if let Call::Release { token } = self.history.ops[op].call
                && !self.sent[op].1
                && self.random.random()
            {
                self.sent[op] = (new, true);
                self.history.ops[op].lane = None;
                self.send(new, op, Ask::Release(token));
            } else {
                self.end(op, Outcome::Indeterminate);
            }
        }
    }

    fn lose_leader(&mut self) {
        let outage = self.random.random_range(0..=self.setting.outage);
        self.up_at = self.now + outage;
        self.later(outage, Happening::Up);
        self.note(Event::Remark { text: "the leader died".to_owned() });
        for waiter in self.service.lose_office() {
            if self.random.random() {
                self.service.acts.push(Act::Busy(waiter));
            } else {
                self.cut(waiter.connection);
            }
        }
    }

    fn restart(&mut self) {
        for connection in 0..self.connections.len() {
            self.connections[connection].delivers = false;
            self.cut(connection);
        }
        self.service.lose_office();
        self.service.skip_tokens();
        if self.random.random() {
            self.service.forget();
            self.note(Event::Forgot);
        } else {
            self.note(Event::SkippedTokens);
        }
    }

    fn kill(&mut self, client: usize) {
        self.clients[client].dead = true;
        self.note(Event::Died { process: client as u64 });
        for connection in self.clients[client].connections.clone() {
            self.cut(connection);
        }
    }
}
