//! Each rule is broken once, by hand.

use std::rc::Rc;
use std::sync::Arc;

use ticketing_engine::{Answer, Effect, Office, Replica, record};

use super::{Ledger, No, Queues};
use crate::cluster::{Command, Entry};
use crate::time::{SECOND, Time};
use crate::trace::Trace;

const OFFICE: Office = Office { term: 1, run: 1 };
const KEY: &[u8] = b"k";

/// A ledger, and a node whose log it hears of.
struct Bench {
    ledger: Ledger,
    replica: Replica,
    index: u64,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let mut bench =
            Self { ledger: Ledger::default(), replica: Replica::new([0; 2]), index: 0, now: SECOND };
        bench.commit(Command::Office { office: OFFICE, first_token: 1 });
        bench
    }

    fn commit(&mut self, command: Command) {
        self.index += 1;
        let entry = Entry { term: 1, command: Rc::new(command) };
        let counts = match &*entry.command {
            Command::Office { office, first_token } => self.replica.begin(1, *office, *first_token),
            Command::Batch { office, seq, record } => {
                self.replica.apply(self.now, 1, *office, *seq, record).unwrap()
            }
        };
        let mut trace = Trace::new(1);
        self.ledger.applied(self.now, &mut trace, (self.index, 0), &entry, counts, &self.replica);
    }

    fn effect(&mut self, effect: Effect<'_>) {
        let mut bytes = Vec::new();
        record::encode([effect].into_iter(), &mut bytes);
        let seq = self.replica.place().batches + 1;
        self.commit(Command::Batch { office: OFFICE, seq, record: bytes.into() });
    }

    fn asks(&mut self, owner: u64) {
        self.ledger.asks((0, 1), owner, &Arc::from("k"));
    }

    fn grants(&mut self, owner: u64, token: u64) {
        self.effect(Effect::Grant { key: KEY, owner, token, lease_secs: 10 });
    }

    fn releases(&mut self, token: u64) {
        self.effect(Effect::Release { key: KEY, token });
    }

    /// Owner 1 holds the key under token 1, for ten seconds.
    fn held() -> Self {
        let mut bench = Self::new();
        bench.asks(1);
        bench.grants(1, 1);
        bench.is_told(1, 1);
        bench
    }

    fn is_told(&mut self, owner: u64, token: u64) {
        self.ledger.granted(self.now, owner, token, self.now + 9 * SECOND, true);
    }

    #[track_caller]
    fn breaks(&self, rule: &str) {
        assert_eq!(self.ledger.broken().map(|broken| broken.rule), Some(rule), "{:?}", self.ledger.broken());
    }

    #[track_caller]
    fn is_well(&self) {
        assert_eq!(self.ledger.broken(), None);
    }
}

#[test]
fn what_is_right_breaks_nothing() {
    let mut bench = Bench::held();
    bench.now += 2 * SECOND;
    bench.ledger.releases(bench.now, 1);
    bench.releases(1);
    bench.ledger.released(1);
    bench.asks(2);
    bench.grants(2, 2);
    bench.is_told(2, 2);
    bench.now += 10 * SECOND;
    bench.ledger.expires(bench.now, (0, None), 2, 0);
    bench.effect(Effect::Expire { key: KEY, token: 2 });
    bench.ledger.not_held(bench.now, 2, true);
    bench.is_well();
}

#[test]
fn one_acts_at_a_time() {
    let mut bench = Bench::held();
    bench.asks(2);
    // In the log all is well: only the first client was never asked.
    bench.ledger.grants.get_mut(&1).unwrap().release_at = Some(bench.now);
    bench.releases(1);
    bench.grants(2, 2);
    bench.ledger.grants.get_mut(&1).unwrap().release_at = None;
    bench.is_told(2, 2);
    bench.breaks("Exclusion");
}

#[test]
fn a_lock_is_not_lost() {
    let mut bench = Bench::held();
    bench.releases(1);
    bench.breaks("Lost lock");

    let mut bench = Bench::held();
    bench.ledger.grants.get_mut(&1).unwrap().ended = Some(super::End { expired: true });
    bench.ledger.not_held(bench.now, 1, true);
    bench.breaks("Lost lock");
}

#[test]
fn a_lease_is_neither_short_nor_long() {
    let mut bench = Bench::held();
    bench.now += 8 * SECOND;
    bench.ledger.expires(bench.now, (0, None), 1, 0);
    bench.breaks("Lease");

    let mut bench = Bench::held();
    bench.now += 11 * SECOND;
    bench.ledger.expires(bench.now, (0, None), 1, 0);
    bench.breaks("Lease");

    let mut bench = Bench::held();
    bench.now += 11 * SECOND;
    let ready = bench.now;
    bench.ledger.expires(bench.now, (0, None), 1, ready);
    bench.is_well();
}

#[test]
fn no_means_never() {
    for no in [No::TimedOut, No::Busy, No::NotAcquired] {
        let mut bench = Bench::new();
        bench.asks(1);
        bench.ledger.refused(1, no);
        bench.is_well();
        bench.grants(1, 1);
        bench.breaks("Answer");

        let mut bench = Bench::held();
        bench.ledger.refused(1, no);
        bench.breaks("Answer");
    }
}

#[test]
fn what_is_held_is_not_said_not_to_be() {
    let mut bench = Bench::held();
    bench.ledger.not_held(bench.now, 1, false);
    bench.breaks("Answer");
}

#[test]
fn one_ask_is_one_grant_for_one_caller() {
    let mut bench = Bench::held();
    bench.ledger.releases(bench.now, 1);
    bench.releases(1);
    bench.grants(1, 2);
    bench.breaks("Once");

    let mut bench = Bench::held();
    bench.is_told(1, 1);
    bench.breaks("Once");
}

#[test]
fn tokens_are_dense_and_grow_for_whoever_looks() {
    let mut bench = Bench::new();
    bench.asks(1);
    bench.grants(1, 2);
    bench.breaks("Tokens");

    let mut bench = Bench::new();
    bench.asks(1);
    bench.grants(1, 1);
    bench.ledger.told = 1;
    bench.ledger.asks.get_mut(&1).unwrap().newer_than = 1;
    bench.is_told(1, 1);
    bench.breaks("Tokens");
}

#[test]
fn nothing_is_said_that_has_not_committed() {
    let mut bench = Bench::new();
    bench.asks(1);
    bench.is_told(1, 1);
    bench.breaks("Commit");

    let mut bench = Bench::held();
    bench.ledger.released(1);
    bench.breaks("Commit");
}

#[test]
fn nothing_is_kept_for_nobody() {
    for undelivered in [true, false] {
        let mut bench = Bench::new();
        bench.asks(1);
        bench.grants(1, 1);
        if undelivered {
            bench.ledger.undelivered(1, Some(OFFICE));
        } else {
            bench.ledger.granted(bench.now, 1, 1, bench.now, false);
        }
        bench.now += 10 * SECOND;
        bench.effect(Effect::Expire { key: KEY, token: 1 });
        bench.breaks("Orphan");
    }
}

#[test]
fn two_nodes_have_one_log_and_one_state() {
    let entry =
        |first_token| Entry { term: 1, command: Rc::new(Command::Office { office: OFFICE, first_token }) };
    let mut trace = Trace::new(1);
    let mut other = Replica::new([1; 2]);
    assert!(other.begin(1, OFFICE, 1));
    let mut bench = Bench::new();
    bench.ledger.applied(0, &mut trace, (1, 1), &entry(1), true, &other);
    bench.is_well();
    bench.ledger.applied(0, &mut trace, (1, 1), &entry(2), true, &other);
    bench.breaks("Log");

    let mut bench = Bench::new();
    bench.ledger.applied(0, &mut trace, (1, 1), &entry(1), true, &Replica::new([1; 2]));
    bench.breaks("Replica");
}

#[test]
fn a_cluster_without_memory_decides_nothing() {
    let mut bench = Bench::new();
    bench.ledger.is_over = true;
    bench.asks(1);
    bench.grants(1, 1);
    bench.breaks("Identity");
}

#[test]
fn whoever_comes_first_is_served_first() {
    let mut bench = Bench::new();
    let mut queues = Queues::default();
    for owner in [1, 2] {
        queues.asked(owner, owner, KEY, 10 * SECOND, true);
    }
    queues.granted(&mut bench.ledger, KEY, 2);
    queues.settle(&mut bench.ledger);
    bench.breaks("Order");

    let mut bench = Bench::new();
    let mut queues = Queues::default();
    for owner in [1, 2] {
        queues.asked(owner, owner, KEY, 10 * SECOND, true);
    }
    queues.closed(1);
    queues.granted(&mut bench.ledger, KEY, 2);
    queues.settle(&mut bench.ledger);
    bench.is_well();
    queues.granted(&mut bench.ledger, KEY, 1);
    bench.breaks("Orphan");
}

#[test]
fn a_wait_runs_out_on_time() {
    for (now, ready, is_right) in [(9, 0, false), (10, 0, true), (11, 0, false), (11, 11, true)] {
        let mut bench = Bench::new();
        let mut queues = Queues::default();
        queues.asked(1, 1, KEY, 10 * SECOND, true);
        let answer = Answer::TimedOut { owner: 1, key: KEY };
        queues.answered(&mut bench.ledger, (now * SECOND, ready * SECOND), 1, answer);
        if is_right { bench.is_well() } else { bench.breaks("Wait") }
    }
}
