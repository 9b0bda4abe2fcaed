//! Large numbers. The bounds on time are generous; what they tell apart is work
//! that grows with the size of a queue from work that does not: a scan of 100,000
//! waiters for each of 100,000 requests takes minutes. It is the time that the
//! test itself was at work that counts, however busy the machine is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use ticketing_engine::{
    Answer, Config, ConnId, Effect, Engine, Input, Limits, Nanos, Request, SECOND, Table, record,
};

const KEY: &[u8] = b"seat:1";
const WAITERS: u64 = 100_000;
const LOCKS: u64 = 1_000_000;
const HOLDER: ConnId = ConnId(u64::MAX);
const LONG_SECS: u8 = 250;

/// One after the other, each in a turn of its own: the slowest way.
struct Server {
    engine: Engine,
    now: Nanos,
}

impl Server {
    fn new() -> Self {
        let limits = Limits {
            waiters_per_key: 200_000,
            in_flight_per_connection: 2_000_000,
            tombstones: 500_000,
            ..Limits::default()
        };
        Self { engine: Engine::new(Config { limits, hash_seed: [3, 4], ..Config::default() }), now: SECOND }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.engine.handle(self.now, input);
    }

    fn ask(&mut self, conn: ConnId, request: Request<'_>) {
        self.handle(Input::Request(conn, request));
    }

    fn acquire(&mut self, conn: ConnId, key: &[u8], owner: u64, wait_secs: u8, lease_secs: u8) {
        let received = self.now;
        self.ask(conn, Request::Acquire { wait_secs, lease_secs, owner, key, received });
    }

    fn release(&mut self, token: u64, key: &[u8]) {
        self.ask(HOLDER, Request::Release { token, key });
    }

    /// Commits the turn and tells what is said. Returns the number of effects.
    fn settle(&mut self, mut said: impl FnMut(ConnId, Answer<'_>)) -> usize {
        let mut effects = 0;
        while let Some(batch) = self.engine.seal() {
            effects += batch.effects().count();
            self.handle(Input::Committed(batch.seq()));
            self.engine.recycle(batch);
        }
        self.engine.drain(&mut said);
        effects
    }

    /// `KEY` is held under token 1, and waiter number n is owner n on `conn(n)`.
    fn with_a_queue(conn: impl Fn(u64) -> ConnId) -> Self {
        let mut server = Self::new();
        server.acquire(HOLDER, KEY, 0, 0, LONG_SECS);
        for owner in 1..=WAITERS {
            server.acquire(conn(owner), KEY, owner, LONG_SECS, LONG_SECS);
        }
        server.settle(|_, _| {});
        assert_eq!(server.engine.stats().waiters, WAITERS);
        server
    }

    fn assert_idle(&self) {
        let stats = self.engine.stats();
        assert_eq!((stats.held, stats.waiters, stats.tombstones), (0, 0, 0));
        assert_eq!(self.engine.next_deadline(), None);
    }
}

fn key_number(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Time that this test has worked, from some moment on.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn assert_quick(start: Duration, what: &str) {
    let took = worked() - start;
    assert!(took < Duration::from_secs(5), "{what} took {took:?}");
}

/// A shuffle that is the same in every run: all of 1 to `WAITERS`, far apart.
fn scattered() -> impl Iterator<Item = u64> {
    (1..=WAITERS)
        .map(|number| number * 61_803 % (WAITERS + 3))
        .filter(|number| (1..=WAITERS).contains(number))
}

#[test]
fn a100_a_queue_is_handed_on_to_its_last_waiter_in_order() {
    let mut server = Server::with_a_queue(|owner| ConnId(owner % 100));
    let start = worked();
    for token in 1..=WAITERS {
        server.release(token, KEY);
        let mut next = None;
        server.settle(|conn, answer| {
            if let Answer::Granted { token, owner, .. } = answer {
                next = Some((conn, token, owner));
            }
        });
        assert_eq!(next, Some((ConnId(token % 100), token + 1, token)));
    }
    server.release(WAITERS + 1, KEY);
    server.settle(|_, _| {});
    assert_quick(start, "handing on");
    server.assert_idle();
}

#[test]
fn a100_all_waiters_cancel_in_any_order() {
    let orders: [(&str, Box<dyn Iterator<Item = u64>>); 3] = [
        ("from the head", Box::new(1..=WAITERS)),
        ("from the tail", Box::new((1..=WAITERS).rev())),
        ("anyhow", Box::new(scattered().chain(1..=WAITERS))),
    ];
    for (order, owners) in orders {
        let mut server = Server::with_a_queue(|_| ConnId(1));
        let start = worked();
        for owner in owners {
            server.ask(ConnId(1), Request::Cancel { owner, key: KEY });
        }
        let mut refused = 0;
        server.settle(|_, answer| refused += u64::from(matches!(answer, Answer::Busy { .. })));
        assert_quick(start, order);
        assert_eq!(refused, WAITERS, "{order}");
        assert_eq!(server.engine.stats().waiters, 0, "{order}");
    }
}

#[test]
fn a100_the_connections_of_all_waiters_close() {
    for connections in [1, 100, WAITERS] {
        let mut server = Server::with_a_queue(|owner| ConnId(owner % connections));
        let start = worked();
        for conn in 0..connections {
            server.handle(Input::Closed(ConnId(conn)));
        }
        assert_quick(start, "closing");
        assert_eq!(server.engine.stats().waiters, 0);
        server.settle(|_, _| panic!("nobody is there to hear it"));
        server.release(1, KEY);
        server.settle(|_, _| {});
        server.assert_idle();
    }
}

#[test]
fn a100_all_waits_run_out() {
    let mut server = Server::with_a_queue(|owner| ConnId(owner % 100));
    // The holder's lease is as long as the waits; without this it would end first.
    server.release(1, KEY);
    server.settle(|_, _| {});
    let per_tick = u64::from(Limits::default().timers_per_tick);
    let left = WAITERS - 1;
    server.now += u64::from(LONG_SECS) * SECOND;
    let start = worked();
    let mut next = 2;
    for tick in 1..=left.div_ceil(per_tick) {
        server.handle(Input::Tick);
        server.settle(|_, answer| {
            assert_eq!(answer, Answer::TimedOut { owner: next, key: KEY });
            next += 1;
        });
        assert_eq!(server.engine.stats().waiters, left.saturating_sub(tick * per_tick));
    }
    assert_quick(start, "running out");
}

#[test]
fn a100_all_waiters_are_refused_by_a_drain_and_by_the_loss_of_office() {
    for end in [Input::Drain, Input::Retire] {
        let mut server = Server::with_a_queue(|owner| ConnId(owner % 100));
        let start = worked();
        server.handle(end);
        let mut next = 1;
        server.engine.drain(|_, answer| {
            assert_eq!(answer, Answer::Busy { owner: next, key: KEY });
            next += 1;
        });
        assert_quick(start, "refusing");
        assert_eq!(next, WAITERS + 1);
    }
}

#[test]
fn a100_all_waiters_are_taken_out_by_a_verify_each() {
    let mut server = Server::with_a_queue(|owner| ConnId(owner % 100));
    let start = worked();
    for owner in scattered().chain(1..=WAITERS) {
        server.ask(HOLDER, Request::Verify { owner, key: KEY });
    }
    let mut buried = 0;
    server.settle(|_, answer| buried += u64::from(matches!(answer, Answer::VerifiedBusy { .. })));
    assert_quick(start, "verifying");
    assert!(buried >= WAITERS);
    assert_eq!((server.engine.stats().waiters, server.engine.stats().tombstones), (0, WAITERS));
}

/// The last one asks for its place 100,000 times, while every other one leaves.
#[test]
fn the_place_of_the_last_waiter_is_found_without_a_walk() {
    let mut server = Server::with_a_queue(|_| ConnId(1));
    let start = worked();
    let mut left = WAITERS;
    for owner in 1..=WAITERS {
        if owner % 2 == 1 {
            server.ask(ConnId(1), Request::Cancel { owner, key: KEY });
            left -= 1;
        }
        server.ask(HOLDER, Request::Place { owner: WAITERS, key: KEY });
        let expected = u32::try_from(left).unwrap();
        server.engine.drain(|_, answer| {
            if let Answer::Place { place, waiters, .. } = answer {
                assert_eq!((place, waiters), (expected, expected));
            }
        });
    }
    assert_quick(start, "asking");

    let middle = WAITERS / 2;
    server.ask(HOLDER, Request::Place { owner: middle, key: KEY });
    let expected = u32::try_from(middle / 2).unwrap();
    server.engine.drain(|_, answer| {
        assert_eq!(answer, Answer::Place { owner: middle, place: expected, waiters: 2 * expected, key: KEY });
    });
}

#[test]
fn a99_a_million_locks_are_held_and_released() {
    let mut server = Server::new();
    let start = worked();
    for number in 1..=LOCKS {
        server.acquire(ConnId(number % 100), &key_number(number), number, 0, LONG_SECS);
        if number % 1_000 == 0 {
            server.settle(|_, _| {});
        }
    }
    assert_eq!(server.engine.stats().held, LOCKS);
    server.acquire(ConnId(1), KEY, 0, 0, 1);
    server.settle(|_, answer| {
        assert_eq!(answer, Answer::Busy { owner: 0, key: KEY }, "one more than the limit");
    });
    let mut released = 0;
    for number in 1..=LOCKS {
        server.release(number, &key_number(number));
        if number % 1_000 == 0 {
            server.settle(|_, answer| released += u64::from(matches!(answer, Answer::Released { .. })));
        }
    }
    assert_quick(start, "a million");
    assert_eq!(released, LOCKS);
    server.assert_idle();
}

/// What a node does with them that does not lead, that joins, and that takes office.
#[test]
fn a99_a_million_locks_are_applied_sent_read_and_taken_over() {
    let mut table = Table::new([1, 2]);
    let mut bytes = Vec::new();
    let start = worked();
    for first in (1..=LOCKS).step_by(1_000) {
        let keys = (first..first + 1_000).map(|number| (number, key_number(number))).collect::<Vec<_>>();
        let grants = keys.iter().map(|(number, key)| Effect::Grant {
            key,
            owner: *number,
            token: *number,
            lease_secs: LONG_SECS,
        });
        bytes.clear();
        record::encode(grants, &mut bytes);
        table.apply_batch(SECOND + first, record::decode(&bytes).unwrap()).unwrap();
    }
    assert_quick(start, "applying");

    let start = worked();
    bytes.clear();
    table.clone().write(10 * SECOND, &mut bytes);
    assert_quick(start, "writing");
    assert_eq!(bytes.len(), 37 * 1_000_000 + 37);

    let start = worked();
    let read = Table::read(1_010 * SECOND, [3, 4], &bytes).unwrap();
    assert_quick(start, "reading");
    assert_eq!((read.hash(), read.held() as u64), (table.hash(), LOCKS));

    let start = worked();
    let mut engine = Engine::restore(Config::default(), &read);
    assert_quick(start, "taking over");
    assert_eq!(engine.stats().held, LOCKS);
    let end = (1_001 + u64::from(LONG_SECS)) * SECOND;
    assert_eq!(engine.next_deadline(), Some(end + 1));

    // All of them run out at one time, in the order of their grants.
    let start = worked();
    let mut expired = 0;
    while engine.next_deadline().is_some() {
        engine.handle(end + LOCKS, Input::Tick);
        let batch = engine.seal().unwrap();
        for effect in batch.effects() {
            expired += 1;
            assert_eq!(effect, Effect::Expire { key: &key_number(expired), token: expired });
        }
        table.apply_batch(end + LOCKS, batch.effects()).unwrap();
        engine.handle(end + LOCKS, Input::Committed(batch.seq()));
        engine.recycle(batch);
        engine.drain(|_, _| {});
    }
    assert_quick(start, "running out");
    assert_eq!((expired, table.held(), engine.stats().held), (LOCKS, 0, 0));
}

#[test]
fn a44_a_storm_of_expiries_is_done_in_bounded_ticks() {
    let mut server = Server::new();
    for number in 1..=WAITERS {
        server.acquire(ConnId(1), &key_number(number), 1, 0, 10);
        server.acquire(ConnId(2), &key_number(number), 2, 60, 10);
    }
    server.settle(|_, _| {});
    let per_tick = u64::from(Limits::default().timers_per_tick);

    let start = worked();
    for storm in [1, 2] {
        server.now += 10 * SECOND;
        let mut left = WAITERS;
        while left > 0 {
            assert_eq!(server.engine.next_deadline(), Some(server.now), "storm {storm}: there is more to do");
            server.handle(Input::Tick);
            let effects = server.settle(|conn, answer| {
                assert_eq!(conn, ConnId(2));
                assert!(matches!(answer, Answer::Granted { owner: 2, .. }));
            });
            assert_eq!(effects as u64, left.min(per_tick), "storm {storm}");
            left -= effects as u64;
        }
    }
    assert_quick(start, "two storms");
    server.assert_idle();
}

/// Handing on skips all waits that are over, in one step, and each only once.
#[test]
fn a_release_passes_over_a_queue_of_waits_that_are_over() {
    let mut server = Server::new();
    server.acquire(HOLDER, KEY, 0, 0, LONG_SECS);
    for owner in 1..=WAITERS {
        server.acquire(ConnId(1), KEY, owner, 5, 10);
    }
    server.acquire(ConnId(1), KEY, WAITERS + 1, 60, 10);
    server.settle(|_, _| {});
    server.now += 5 * SECOND;
    let start = worked();
    server.release(1, KEY);
    let batch = server.engine.seal().unwrap();
    let effects = batch.effects().collect::<Vec<_>>();
    assert!(matches!(effects[..], [Effect::HandOff { ended: 1, token: 2, .. }]), "{effects:?}");
    server.handle(Input::Committed(batch.seq()));
    let mut said = 0;
    server.engine.drain(|_, _| said += 1);
    assert_eq!(said, WAITERS + 2);
    server.handle(Input::Tick);
    assert!(server.engine.seal().is_none());
    assert_quick(start, "passing over");
}
