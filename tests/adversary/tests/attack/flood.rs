//! Much of something that costs the sender nothing.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_until, wire};

use crate::bulk::scaled;
use crate::timed;

const MIB: u64 = 1024 * 1024;

/// How long a healthy client's round trips take, sorted.
fn round_trips(raw: &mut Raw, going_on: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while going_on(took.len()) {
        let ((), time) = timed(|| {
            let token = raw.take("witness", 1, 60);
            raw.release("witness", token);
            raw.expect(&Reply::released(token, "witness"));
        });
        took.push(time);
    }
    took.sort_unstable();
    took
}

#[test]
fn a11_ten_million_empty_frames() {
    let server = Server::start(&[]);
    let mut witness = Raw::open(server.addr());
    let mut flooder = Raw::open(server.addr());
    round_trips(&mut witness, |count| count < 200);
    let before = server.usage();
    let over = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            let line_feeds = vec![b'\n'; 64 * 1024];
            for _ in 0..10_000_000 / line_feeds.len() {
                flooder.send(&line_feeds);
            }
            // It is served behind its flood.
            let token = flooder.take("k", 1, 60);
            flooder.release("k", token);
            flooder.expect(&Reply::released(token, "k"));
            over.store(true, Ordering::Relaxed);
        });
        round_trips(&mut witness, |count| count < 100 || (!over.load(Ordering::Relaxed) && count < 1_000_000))
    });
    let slow = took[took.len() * 99 / 100];
    assert!(slow < Duration::from_millis(200), "the 99th percentile of a healthy client is {slow:?}");
    let after = server.usage();
    let grown = after.rss.saturating_sub(before.rss);
    assert!(grown < 4 * MIB, "{grown} bytes of memory for empty frames");
    let ticks = after.cpu_ticks - before.cpu_ticks;
    // Ten million bytes at 200 ns a byte, and the healthy client.
    assert!(ticks < 200 + took.len() as u64 / 50, "{ticks} ticks of processor time");
}

#[test]
fn j98_one_reader_that_never_reads_costs_nobody_else() {
    let server = Server::start(&[]);
    let mut witness = Raw::open(server.addr());
    let mut deaf = Raw::open(server.addr());
    let before = server.usage();
    let over = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        let writer = deaf.tcp().try_clone().unwrap();
        let over = &over;
        scope.spawn(move || {
            let mut writer = writer;
            writer.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut number = 0;
            // Pairs of acquires of free keys and releases, a million of them, unless the server has enough.
            while number < scaled(1_000_000) {
                let batch: Vec<u8> = (number..number + 500)
                    .flat_map(|number| {
                        [wire::acquire(format!("k-{number}"), number, 0, 1), wire::release("k", number)]
                            .concat()
                    })
                    .collect();
                if writer.write_all(&batch).is_err() {
                    break;
                }
                number += 500;
            }
            over.store(true, Ordering::Relaxed);
        });
        round_trips(&mut witness, |count| count < 100 || (!over.load(Ordering::Relaxed) && count < 1_000_000))
    });
    let slow = took[took.len() * 99 / 100];
    assert!(slow < Duration::from_millis(200), "the 99th percentile of a healthy client is {slow:?}");
    let grown = server.usage().rss.saturating_sub(before.rss);
    // The answers are bounded by 1 MiB; the rest is the locks that it holds for a second.
    assert!(grown < 16 * MIB, "{grown} bytes for one client that does not read");
    while deaf.read_within(PATIENCE).is_some() {}
    assert!(deaf.closed().is_some());
}

#[test]
fn j97_connections_that_come_and_go() {
    let server = Server::start(&[]);
    let mut witness = Raw::open(server.addr());
    let before = server.usage();
    let over = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        let (addr, over) = (server.addr(), &over);
        scope.spawn(move || {
            for number in 0..scaled(2000) {
                match number % 5 {
                    // Gone before the greeting, before the answer, in the middle of it, after it, with a waiter.
                    0 => Raw::connect(addr).reset(),
                    1 => drop(Raw::connect(addr)),
                    2 => Raw::connect(addr).send("half an answer"),
                    3 => Raw::open(addr).reset(),
                    _ => Raw::open(addr).acquire("witness", number, 60, 1),
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut took = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let (token, time) = timed(|| {
                witness.acquire("mine", 1, 0, 60);
                witness.expect_granted("mine", 1)
            });
            took.push(time);
            witness.release("mine", token);
            witness.expect(&Reply::released(token, "mine"));
        }
        took.sort_unstable();
        took
    });
    let slow = took[took.len() * 99 / 100];
    assert!(slow < Duration::from_millis(200), "the 99th percentile of a healthy client is {slow:?}");
    wait_until("the end of all connections", PATIENCE, || server.usage().descriptors <= before.descriptors);
    let grown = server.usage().rss.saturating_sub(before.rss);
    assert!(grown < 8 * MIB, "{grown} bytes for connections that are gone");
}
