//! A machine with the few words that hand-written tests need.

use ticketing_engine::{Config, ConnId, Effect, Input, Limits, Nanos, Request, SECOND, Seq, Table};

use crate::machine::Machine;
use crate::model::Key;
use crate::plain::Plain;

/// The key of most stories.
pub(crate) const K: Key = b"k";
/// A lease that nobody chose on purpose, in seconds.
pub(crate) const LEASE_SECS: u8 = 10;
const BEGIN: Nanos = 1_000 * SECOND;
/// Nothing was said, or nothing sealed.
pub(crate) const NOTHING: &str = "-";

pub(crate) struct Scene<M> {
    machine: M,
    pub(crate) now: Nanos,
    in_flight: Vec<Seq>,
}

/// Room for everything.
pub(crate) fn roomy() -> Config {
    let limits = Limits {
        waiters_per_key: 1_000,
        waiters: 1_000,
        held: 1_000,
        in_flight_per_connection: 1_000,
        tombstones: 1_000,
        timers_per_tick: 1_000,
    };
    Config { limits, hash_seed: [1, 2], next_token: 1 }
}

impl<M: Machine> Scene<M> {
    pub(crate) fn new(config: &Config) -> Self {
        Self { machine: M::new(config), now: BEGIN, in_flight: Vec::new() }
    }

    /// A machine that takes over, at the same time as others begin, what these effects
    /// left; each was applied so long before.
    pub(crate) fn after(config: &Config, applied: &[(Nanos, Effect<'static>)]) -> Self {
        let now = BEGIN;
        let (mut table, mut plain) = (Table::new([8, 9]), Plain::default());
        for &(ago, effect) in applied {
            table.apply(now - ago, effect).unwrap();
            plain.apply(now - ago, effect).unwrap();
        }
        Self { machine: M::restore(config, &table, &plain), now, in_flight: Vec::new() }
    }

    pub(crate) fn handle(&mut self, input: Input<'static>) {
        self.machine.handle(self.now, input);
    }

    pub(crate) fn ask(&mut self, conn: u64, request: Request<'static>) {
        self.handle(Input::Request(ConnId(conn), request));
    }

    pub(crate) fn acquire(&mut self, conn: u64, key: Key, owner: u64, wait_secs: u8) {
        let received = self.now;
        self.ask(conn, Request::Acquire { wait_secs, lease_secs: LEASE_SECS, owner, key, received });
    }

    pub(crate) fn release(&mut self, conn: u64, key: Key, token: u64) {
        self.ask(conn, Request::Release { token, key });
    }

    pub(crate) fn verify(&mut self, conn: u64, key: Key, owner: u64) {
        self.ask(conn, Request::Verify { owner, key });
    }

    pub(crate) fn close(&mut self, conn: u64) {
        self.handle(Input::Closed(ConnId(conn)));
    }

    pub(crate) fn pass(&mut self, nanos: Nanos) {
        self.now += nanos;
    }

    pub(crate) fn tick(&mut self) {
        self.handle(Input::Tick);
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.machine.next_deadline()
    }

    /// The effects of the turn, "barrier" for a batch without, "-" for no batch.
    pub(crate) fn seal(&mut self) -> String {
        let Some((seq, effects)) = self.machine.seal() else { return NOTHING.to_owned() };
        self.in_flight.push(seq);
        if effects.is_empty() { "barrier".to_owned() } else { effects.join("; ") }
    }

    /// All batches in flight commit.
    pub(crate) fn commit(&mut self) {
        for seq in std::mem::take(&mut self.in_flight) {
            self.handle(Input::Committed(seq));
        }
    }

    /// What is said now, "-" for nothing.
    pub(crate) fn said(&mut self) -> String {
        let said = self.machine.drain();
        if said.is_empty() { NOTHING.to_owned() } else { said.join("; ") }
    }

    /// Seals, commits, and tells what is said.
    pub(crate) fn settle(&mut self) -> String {
        self.seal();
        self.commit();
        self.said()
    }
}
