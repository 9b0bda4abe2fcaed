//! Many clients on few keys, doing what clients do: waiting, holding, forgetting,
//! releasing twice, cancelling, hanging up.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_history::{Event, History, Note};
use ticketing_test_support::{PATIENCE, Raw};

use crate::record::{Recorder, now};

/// What the clients do. Chances are in percent, of every turn of a client.
#[derive(Clone, Debug)]
pub struct Load {
    /// Clients, each with one connection and one thread.
    pub clients: u64,
    /// Keys that they share.
    pub keys: usize,
    /// How long they ask for more.
    pub duration: Duration,
    /// Seed of every choice; the interleaving is the machine's.
    pub seed: u64,
    /// Waits to choose from, in seconds.
    pub waits: &'static [u8],
    /// Leases to choose from, in seconds.
    pub leases: &'static [u8],
    /// Requests that one client has open at a time.
    pub depth: usize,
    /// The longest time for which a client holds a lock.
    pub hold: Duration,
    /// Extension 1 is on, and this is the chance of a cancel; `None`: base version 1.
    pub cancel: Option<u32>,
    /// Chance that a granted lock is never released.
    pub forget: u32,
    /// Chance that a lock is released twice.
    pub repeat: u32,
    /// Chance of a release under a token that nobody holds.
    pub wrong: u32,
    /// Chance that the client hangs up and comes back.
    pub hang_up: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            clients: 12,
            keys: 5,
            duration: Duration::from_secs(6),
            seed: 1,
            waits: &[0, 1, 5, 30],
            leases: &[30],
            depth: 8,
            hold: Duration::from_millis(2),
            cancel: None,
            forget: 0,
            repeat: 2,
            wrong: 2,
            hang_up: 0,
        }
    }
}

impl Load {
    /// Lets the clients loose on a server, waits until all is answered, and
    /// returns what they saw.
    ///
    /// # Panics
    /// If a connection breaks that should not.
    #[must_use]
    pub fn run(&self, addr: SocketAddr) -> History {
        let mut history = History::default();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|number| scope.spawn(move || Client::new(self, addr, number).live()))
                .collect();
            for client in clients {
                let seen = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                history.ops.extend(seen.ops);
                history.notes.extend(seen.notes);
            }
        });
        history.notes.push(Note { from: now(), to: now(), event: Event::End });
        history
    }
}

struct Held {
    key: Vec<u8>,
    token: u64,
    until: Instant,
}

struct Client<'a> {
    load: &'a Load,
    addr: SocketAddr,
    random: StdRng,
    next_owner: u64,
    raw: Raw,
    recorder: Recorder,
    /// What earlier connections saw.
    history: History,
    held: Vec<Held>,
    /// Acquires that may still be queued, for cancels.
    asked: Vec<(Vec<u8>, u64)>,
}

impl<'a> Client<'a> {
    fn new(load: &'a Load, addr: SocketAddr, number: u64) -> Self {
        Self {
            load,
            addr,
            random: StdRng::seed_from_u64(load.seed << 32 | number),
            next_owner: number << 32,
            raw: Raw::open_with(addr, b"", load.cancel.is_some()),
            recorder: Recorder::new(),
            history: History::default(),
            held: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn live(mut self) -> History {
        let end = Instant::now() + self.load.duration;
        while Instant::now() < end {
            self.ask();
            self.misbehave();
            self.turn(Duration::from_millis(1));
        }
        self.settle();
        self.note(false);
        self.history
    }

    /// Waits for every answer, and gives every lock back.
    fn settle(&mut self) {
        let longest = self.load.waits.iter().max().copied().unwrap_or(0);
        let deadline = Instant::now() + Duration::from_secs(longest.into()) + PATIENCE;
        while !(self.recorder.is_settled() && self.held.is_empty()) && Instant::now() < deadline {
            self.turn(Duration::from_millis(20));
        }
    }

    fn ask(&mut self) {
        let mut batch = Vec::new();
        while self.recorder.open_acquires() < self.load.depth && self.random.random_ratio(2, 3) {
            let key = format!("key-{}", self.random.random_range(0..self.load.keys)).into_bytes();
            let wait = self.load.waits[self.random.random_range(0..self.load.waits.len())];
            let lease = self.load.leases[self.random.random_range(0..self.load.leases.len())];
            self.next_owner += 1;
            batch.extend(self.recorder.acquire(&key, self.next_owner, wait, lease));
            self.asked.push((key, self.next_owner));
        }
        self.raw.send(batch);
    }

    fn misbehave(&mut self) {
        if self.load.cancel.is_some_and(|percent| self.chance(percent)) && !self.asked.is_empty() {
            let (key, owner) = self.asked.swap_remove(self.random.random_range(0..self.asked.len()));
            let cancel = self.recorder.cancel(&key, owner);
            self.raw.send(cancel);
        }
        self.asked.truncate(4 * self.load.depth);
        if self.chance(self.load.wrong) {
            let key = format!("key-{}", self.random.random_range(0..self.load.keys)).into_bytes();
            // A token of the far future is nobody's.
            let release = self.recorder.release(&key, self.random.random_range(1 << 63..=u64::MAX));
            self.raw.send(release);
        }
        if self.chance(self.load.hang_up) {
            self.hang_up();
        }
    }

    /// One connection ends, mostly with requests open; the locks it held are kept.
    fn hang_up(&mut self) {
        let raw = Raw::open_with(self.addr, b"", self.load.cancel.is_some());
        let old = std::mem::replace(&mut self.raw, raw);
        if self.random.random() {
            old.reset();
        }
        self.note(true);
        self.asked.clear();
    }

    /// One connection is over, and another begins.
    fn note(&mut self, hung_up: bool) {
        let seen = std::mem::take(&mut self.recorder).finish(hung_up);
        self.history.ops.extend(seen.ops);
        self.history.notes.extend(seen.notes);
    }

    /// Releases what was held for long enough, and reads what comes within that time.
    fn turn(&mut self, patience: Duration) {
        let now = Instant::now();
        let (due, kept): (Vec<_>, _) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.until <= now);
        self.held = kept;
        let mut batch = Vec::new();
        for Held { key, token, .. } in due {
            batch.extend(self.recorder.release(&key, token));
            if self.chance(self.load.repeat) {
                batch.extend(self.recorder.release(&key, token));
            }
        }
        self.raw.send(batch);
        let mut patience = patience;
        while let Some(reply) = self.raw.read_within(patience) {
            patience = Duration::ZERO;
            if let Some(token) = self.recorder.answer(&reply)
                && !self.chance(self.load.forget)
            {
                let until = Instant::now() + self.load.hold.mul_f64(self.random.random());
                self.held.push(Held { key: reply.key().unwrap_or_default().to_vec(), token, until });
            }
        }
        assert!(self.raw.closed().is_none(), "the server ended a connection");
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }
}
