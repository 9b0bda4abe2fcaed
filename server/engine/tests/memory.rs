//! What is over uses no memory. One test to the process, as it counts every byte
//! that the process has.
#![allow(clippy::unwrap_used)]

use peak_alloc::PeakAlloc;
use ticketing_engine::{Batch, Config, ConnId, Engine, Input, Limits, Nanos, Request, SECOND};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// What an engine may keep for its next requests.
const KEPT: usize = 1 << 20;
const MANY: u64 = 100_000;
const QUEUE: &[u8] = b"queue";

struct Server {
    engine: Engine,
    now: Nanos,
}

impl Server {
    fn new() -> Self {
        let limits = Limits { in_flight_per_connection: 1_000_000, ..Limits::default() };
        Self { engine: Engine::new(Config { limits, ..Config::default() }), now: SECOND }
    }

    fn ask(&mut self, conn: u64, request: Request<'_>) {
        self.engine.handle(self.now, Input::Request(ConnId(conn), request));
    }

    fn acquire(&mut self, conn: u64, key: &[u8], owner: u64) {
        let received = self.now;
        self.ask(conn, Request::Acquire { wait_secs: 200, lease_secs: 250, owner, key, received });
    }

    fn release(&mut self, conn: u64, key: &[u8], token: u64) {
        self.ask(conn, Request::Release { token, key });
    }

    fn close(&mut self, conn: u64) {
        self.engine.handle(self.now, Input::Closed(ConnId(conn)));
    }

    fn commit(&mut self, batch: Batch) {
        self.engine.handle(self.now, Input::Committed(batch.seq()));
        self.engine.recycle(batch);
        self.engine.drain(|_, _| {});
    }

    fn settle(&mut self) {
        while let Some(batch) = self.engine.seal() {
            self.commit(batch);
        }
        self.engine.drain(|_, _| {});
    }

    /// Time passes, and everything runs out.
    fn run_out(&mut self, secs: u64) {
        self.now += secs * SECOND;
        while self.engine.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.engine.handle(self.now, Input::Tick);
            self.settle();
        }
    }

    fn assert_idle(&self) {
        let stats = self.engine.stats();
        assert_eq!((stats.held, stats.waiters, stats.tombstones, stats.connections), (0, 0, 0, 0));
        assert_eq!(self.engine.next_deadline(), None);
    }
}

fn key_number(number: u64) -> [u8; 100] {
    let mut key = [b'k'; 100];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn many_locks_at_one_time(server: &mut Server) {
    let first = server.engine.next_token();
    for number in 0..MANY {
        server.acquire(number, &key_number(number), number);
    }
    server.settle();
    for number in 0..MANY {
        server.release(number, &key_number(number), first + number);
        server.settle();
        server.close(number);
    }
}

fn many_waiters_of_one_key(server: &mut Server) {
    for owner in 0..MANY {
        server.acquire(owner % 3, QUEUE, owner);
    }
    server.settle();
    for owner in (1..MANY).step_by(3) {
        server.ask(1, Request::Cancel { owner, key: QUEUE });
    }
    server.close(2);
    server.run_out(250);
    server.close(0);
    server.close(1);
}

fn many_tombstones(server: &mut Server) {
    for owner in 0..MANY {
        server.ask(1, Request::Verify { owner, key: &key_number(owner) });
    }
    server.settle();
    server.close(1);
    server.run_out(600);
}

fn one_lock_after_the_other(server: &mut Server) {
    for number in 0..MANY {
        let token = server.engine.next_token();
        server.acquire(number, &key_number(number), number);
        server.settle();
        server.release(number, &key_number(number), token);
        server.settle();
        server.close(number);
    }
}

/// In a cluster there may always be a batch in flight.
fn one_lock_after_the_other_in_a_pipeline(server: &mut Server) {
    let mut in_flight: Option<Batch> = None;
    for number in 0..MANY {
        let token = server.engine.next_token();
        server.acquire(1, &key_number(number), number);
        server.release(1, &key_number(number), token);
        let next = server.engine.seal();
        if let Some(batch) = std::mem::replace(&mut in_flight, next) {
            server.commit(batch);
        }
    }
    server.commit(in_flight.unwrap());
    server.close(1);
}

/// A leader that is cut off says "timed out" and "place" for as long as it takes.
fn a_turn_that_cannot_be_sealed(server: &mut Server) {
    let token = server.engine.next_token();
    server.acquire(1, QUEUE, 1);
    for number in 0..MANY {
        server.ask(2, Request::Place { owner: number, key: &key_number(number) });
        server.engine.drain(|_, _| {});
    }
    server.settle();
    server.release(1, QUEUE, token);
    server.settle();
    server.close(1);
    server.close(2);
}

/// One lock with a waiter is there before all others, one after; both stay.
fn many_locks_and_waiters_but_two_of_each_stay(server: &mut Server) {
    let first = server.engine.next_token() + 1;
    for (who, key) in [(MANY, b"first".as_slice()), (MANY + 1, b"last")] {
        server.acquire(who, key, who);
        server.acquire(who, key, who);
        server.settle();
        for number in (0..MANY).filter(|_| who == MANY) {
            server.acquire(number, &key_number(number), number);
            server.acquire(number, &key_number(number), number);
            server.settle();
        }
    }
    for number in 0..MANY {
        server.close(number);
        server.release(MANY, &key_number(number), first + number);
        server.settle();
    }
}

/// What an engine uses now and used at most, beyond what it did before.
struct Used {
    now: usize,
    peak: usize,
}

fn used(before: usize) -> Used {
    let beyond = |bytes: usize| bytes.saturating_sub(before);
    Used { now: beyond(ALLOCATED.current_usage()), peak: beyond(ALLOCATED.peak_usage()) }
}

#[test]
fn a99_what_is_over_uses_no_memory() {
    type Story = fn(&mut Server);

    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let mut server = Server::new();
    let Used { now, .. } = used(before);
    assert!(now < KEPT, "a new engine uses {now} bytes");

    let one_by_one: [(&str, Story); 3] = [
        ("locks", one_lock_after_the_other),
        ("locks in a pipeline", one_lock_after_the_other_in_a_pipeline),
        ("answers of one turn", a_turn_that_cannot_be_sealed),
    ];
    for (what, story) in one_by_one {
        story(&mut server);
        server.assert_idle();
        let Used { peak, .. } = used(before);
        assert!(peak < KEPT, "{peak} bytes at the most for {MANY} {what}, one after the other");
    }

    let at_one_time: [(&str, Story); 3] = [
        ("locks", many_locks_at_one_time),
        ("waiters", many_waiters_of_one_key),
        ("tombstones", many_tombstones),
    ];
    for (what, story) in at_one_time {
        ALLOCATED.reset_peak_usage();
        story(&mut server);
        server.assert_idle();
        let Used { now, peak } = used(before);
        assert!(peak > KEPT, "{peak} bytes were enough for {MANY} {what}: the counting is off");
        assert!(now < KEPT, "{now} of {peak} bytes are left of {MANY} {what}");
    }

    ALLOCATED.reset_peak_usage();
    many_locks_and_waiters_but_two_of_each_stay(&mut server);
    let stats = server.engine.stats();
    assert_eq!((stats.held, stats.waiters), (2, 2));
    let Used { now, peak } = used(before);
    assert!(now < KEPT, "{now} of {peak} bytes are left of {MANY} locks and waiters, and two of each stay");
}
