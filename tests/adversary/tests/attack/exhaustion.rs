//! As much as the limits allow, and memory that comes back.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_for_queue, wait_until, wire};

use crate::bulk::{pipelined, scaled, token_of};
use crate::timed;

const MIB: u64 = 1024 * 1024;

#[test]
fn j97_thousands_of_idle_connections() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let before = server.usage();
    let mut idle: Vec<Raw> = thread::scope(|scope| {
        let parts: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || (0..1000).map(|_| Raw::open(addr)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let each = server.usage().rss.saturating_sub(before.rss) / idle.len() as u64;
    assert!(each < 16 * 1024, "{each} bytes for an idle connection");
    // Each of them is served.
    for (number, raw) in (0..).zip(&mut idle) {
        raw.acquire(format!("k-{number}"), number, 0, 60);
    }
    for (number, raw) in (0..).zip(&mut idle) {
        let _ = raw.expect_granted(format!("k-{number}"), number);
    }
    // An idle server does nothing.
    let ticks = server.usage().cpu_ticks;
    sleep(Duration::from_secs(2));
    let ticks = server.usage().cpu_ticks - ticks;
    assert!(ticks < 20, "{ticks} ticks of processor time within two seconds of silence");
    drop(idle);
    wait_until("the end of all connections", PATIENCE, || server.usage().descriptors <= before.descriptors);
}

#[test]
fn j97_no_more_descriptors() {
    let server = Server::builder().open_files(256).admin().start();
    let addr = server.addr();
    let mut early = Raw::open(addr);
    let mut raws: Vec<Raw> = (0..400).map(|_| Raw::connect(addr)).collect();
    wait_until("the last descriptor", PATIENCE, || server.usage().descriptors >= 250);
    // It neither dies nor spins, and whoever is in is served.
    let ticks = server.usage().cpu_ticks;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        let token = early.take("k", 1, 60);
        early.release("k", token);
        early.expect(&Reply::released(token, "k"));
        sleep(Duration::from_millis(50));
    }
    let ticks = server.usage().cpu_ticks - ticks;
    assert!(ticks < 60, "{ticks} ticks of processor time within two seconds");
    // It can be watched all the while, again and again.
    for _ in 0..5 {
        assert_eq!(server.admin_get("/readyz").0, 200);
    }
    assert!(server.metric("ticketing_accept_failures_total") >= Some(1.0));
    raws.clear();
    // When there are descriptors again, it goes on.
    let mut late = Raw::open(addr);
    let _ = late.take("k", 2, 60);
}

/// Holds many keys, gives them all back, and looks at the memory.
#[test]
fn j99_keys_that_are_gone_use_no_memory() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let mut raw = Raw::open(addr);
    let count = scaled(300_000);
    // One at a time, nearly: the table never grows.
    let cycle = |raw: &mut Raw, run: u64| {
        let before = server.usage().rss;
        let (mut released, mut done) = (Vec::new(), 0);
        while done < count {
            let stream: Vec<u8> = (done..done + 1000)
                .flat_map(|number| wire::acquire(format!("{run}-{number}"), 1, 0, 60))
                .collect();
            let mut next = Vec::new();
            let answers = 1000 + if released.is_empty() { 0 } else { 1000 };
            pipelined(raw, &[&*std::mem::take(&mut released), &*stream].concat(), answers, |reply| {
                if let Reply::Granted { token, key, .. } = reply {
                    next.extend(wire::release(key, token));
                }
            });
            released = next;
            done += 1000;
        }
        pipelined(raw, &released, 1000, |reply| assert!(matches!(reply, Reply::Released { .. })));
        server.usage().rss.saturating_sub(before)
    };
    let _ = cycle(&mut raw, 0);
    let grown = cycle(&mut raw, 1);
    assert!(grown < 2 * MIB, "{grown} bytes after {count} keys that came and went");

    // All at one time.
    let before = server.usage().rss;
    let stream: Vec<u8> =
        (0..count).flat_map(|number| wire::acquire(format!("all-{number}"), 1, 0, 250)).collect();
    let mut releases = Vec::new();
    pipelined(&mut raw, &stream, count, |reply| {
        releases.extend(wire::release(reply.key().unwrap(), token_of(&reply)));
    });
    let full = server.usage().rss;
    pipelined(&mut raw, &releases, count, |reply| assert!(matches!(reply, Reply::Released { .. })));
    let each = full.saturating_sub(before) / count;
    assert!(each < 400, "{each} bytes for a held lock");
    wait_for_memory(&server, before, full);
}

/// Of what a crowd took, no more than a fifth stays behind; an allocator may take its time.
#[track_caller]
fn wait_for_memory(server: &Server, before: u64, full: u64) {
    let (start, mut now) = (Instant::now(), full);
    while now > before + (full - before) / 5 {
        assert!(start.elapsed() < 2 * PATIENCE, "{now} bytes of memory, {before} before, {full} at the most");
        sleep(Duration::from_millis(50));
        now = server.usage().rss;
    }
}

/// Connections that hold `count` waiters of "k" together, and the owners of each.
fn crowd(server: &Server, count: u64) -> Vec<(Raw, Vec<u64>)> {
    let share = 12_500;
    let mut crowd = Vec::new();
    for first in (0..count).step_by(share) {
        let mut raw = Raw::open_extended(server.addr());
        let owners: Vec<u64> = (first..count.min(first + share as u64)).collect();
        raw.send(owners.iter().flat_map(|&owner| wire::acquire("k", owner, 250, 250)).collect::<Vec<_>>());
        wait_for_queue(&mut raw, "k", first as usize + owners.len());
        crowd.push((raw, owners));
    }
    crowd
}

#[test]
fn j100_a_hundred_thousand_waiters_drain() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", u64::MAX, 250);
    let count = 100_000;
    let mut crowd = crowd(&server, count);
    // One more is too many.
    holder.acquire("k", 1, 250, 250);
    holder.expect(&Reply::busy(1, "k"));
    // The tokens are dense, so that all releases can be written down beforehand.
    let releases: Vec<u8> = (token..token + count).flat_map(|token| wire::release("k", token)).collect();
    let ((), took) = timed(|| {
        thread::scope(|scope| {
            scope.spawn(|| {
                pipelined(&mut holder, &releases, count, |reply| {
                    assert!(matches!(reply, Reply::Released { .. }));
                });
            });
            for (raw, owners) in &mut crowd {
                scope.spawn(|| {
                    for &mut owner in owners {
                        assert_eq!(raw.expect_granted_until("k", owner).0, token + 1 + owner);
                    }
                });
            }
        });
    });
    assert!(took < Duration::from_secs(10), "{count} hand-offs took {took:?}");
}

/// Asking for places is cheap, wherever the place is and however many have left before it.
#[test]
fn j100_places_in_a_long_queue() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let _ = holder.take("k", u64::MAX, 250);
    let mut crowd = crowd(&server, 100_000);
    // Every second one leaves.
    for (raw, owners) in &mut crowd {
        let leaving: Vec<u64> = owners.iter().copied().filter(|owner| owner % 2 == 1).collect();
        let cancels: Vec<u8> = leaving.iter().flat_map(|&owner| wire::cancel("k", owner)).collect();
        pipelined(raw, &cancels, leaving.len() as u64, |reply| assert!(matches!(reply, Reply::Busy { .. })));
    }
    let mut raw = Raw::open_extended(server.addr());
    let owners = || (0..100_000_u64).rev().step_by(5);
    let asks: Vec<u8> = owners().flat_map(|owner| wire::place("k", owner)).collect();
    let mut asked = owners();
    let ((), took) = timed(|| {
        pipelined(&mut raw, &asks, owners().count() as u64, |reply| {
            let owner = asked.next().unwrap();
            let place = if owner % 2 == 0 { u32::try_from(owner / 2).unwrap() + 1 } else { 0 };
            assert_eq!(reply, Reply::place(owner, place, 50_000, "k"));
        });
    });
    assert!(took < Duration::from_secs(5), "20,000 places took {took:?}");
}

#[test]
fn j100_a_hundred_thousand_waiters_cancel() {
    let server = Server::start(&[]);
    let mut holder = Raw::open_extended(server.addr());
    holder.acquire("k", u64::MAX, 0, 250);
    let _ = holder.expect_granted_until("k", u64::MAX);
    let mut crowd = crowd(&server, 100_000);
    let ((), took) = timed(|| {
        thread::scope(|scope| {
            for (raw, owners) in &mut crowd {
                scope.spawn(|| {
                    // From the tail to the head, against every order that could be convenient.
                    let cancels: Vec<u8> =
                        owners.iter().rev().flat_map(|&owner| wire::cancel("k", owner)).collect();
                    let mut expected = owners.iter().rev();
                    pipelined(raw, &cancels, owners.len() as u64, |reply| {
                        assert_eq!(reply, Reply::busy(*expected.next().unwrap(), "k"));
                    });
                });
            }
        });
    });
    assert!(took < Duration::from_secs(8), "100,000 cancels took {took:?}");
    wait_for_queue(&mut holder, "k", 0);
}

#[test]
fn j100_a_hundred_thousand_waiters_hang_up() {
    let server = Server::start(&[]);
    let before = server.usage().rss;
    let mut holder = Raw::open_extended(server.addr());
    holder.acquire("k", u64::MAX, 0, 250);
    let (token, _) = holder.expect_granted_until("k", u64::MAX);
    let crowd = crowd(&server, 100_000);
    let full = server.usage().rss;
    let ((), took) = timed(|| {
        drop(crowd);
        wait_for_queue(&mut holder, "k", 0);
    });
    assert!(took < Duration::from_secs(8), "100,000 waiters left within {took:?}");
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    wait_for_memory(&server, before, full);
}
