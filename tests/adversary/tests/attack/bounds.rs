//! Limits reached exactly, and by one more.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_until, wire};

use crate::closing::fill_with_unread_answers;
use crate::timed;

#[test]
fn c33_waiters_of_a_key() {
    let server = Server::start(&["--max-waiters-per-key", "3"]);
    let mut holder = Raw::open(server.addr());
    let mut raw = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let other = holder.take("other", 1, 60);
    for owner in 10..13 {
        raw.acquire("k", owner, 60, 60);
    }
    for _ in 0..3 {
        raw.acquire("k", 13, 60, 60);
        raw.expect(&Reply::busy(13, "k"));
        // One try that never queues is not hit by the limit of the queue.
        raw.acquire("k", 14, 0, 60);
        raw.expect(&Reply::timed_out(14, "k"));
    }
    // Another key has a queue of its own.
    raw.acquire("other", 20, 60, 60);
    holder.release("other", other);
    holder.expect(&Reply::released(other, "other"));
    let _ = raw.expect_granted("other", 20);
    // A place that gets free can be used at once.
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let _ = raw.expect_granted("k", 10);
    raw.acquire("k", 15, 60, 60);
    raw.acquire("k", 16, 60, 60);
    raw.expect(&Reply::busy(16, "k"));
}

#[test]
fn c33_waiters_of_all_keys() {
    let server = Server::start(&["--max-waiters", "4"]);
    let mut holder = Raw::open(server.addr());
    let tokens = [0, 1, 2].map(|number| holder.take(format!("k-{number}"), 1, 60));
    let mut raws = [Raw::open(server.addr()), Raw::open(server.addr())];
    for (number, raw) in [(0, 0), (1, 1), (2, 0), (0, 1)] {
        raws[raw].acquire(format!("k-{number}"), 10, 1, 60);
        // In this order also at the server.
        raws[raw].release("fence", 1);
        raws[raw].expect(&Reply::not_held(1, "fence"));
    }
    for number in 0..3 {
        raws[0].acquire(format!("k-{number}"), 11, 60, 60);
        raws[0].expect(&Reply::busy(11, format!("k-{number}")));
    }
    // Free keys need no queue.
    let _ = raws[0].take("free", 12, 60);
    // The waits run out, and the places are free again.
    raws[0].expect(&Reply::timed_out(10, "k-0"));
    raws[0].expect(&Reply::timed_out(10, "k-2"));
    raws[1].expect(&Reply::timed_out(10, "k-1"));
    raws[1].expect(&Reply::timed_out(10, "k-0"));
    for number in 0..3 {
        raws[0].acquire(format!("k-{number}"), 13, 60, 60);
    }
    for (number, token) in tokens.into_iter().enumerate() {
        holder.release(format!("k-{number}"), token);
        holder.expect(&Reply::released(token, format!("k-{number}")));
        let _ = raws[0].expect_granted(format!("k-{number}"), 13);
    }
}

#[test]
fn c33_held_locks() {
    let server = Server::start(&["--max-held", "3"]);
    let mut raw = Raw::open(server.addr());
    let tokens = ["a", "b", "c"].map(|key| raw.take(key, 1, 60));
    for wait in [0, 60] {
        raw.acquire("d", 2, wait, 60);
        raw.expect(&Reply::busy(2, "d"));
    }
    // A lock that is handed on is no further lock.
    raw.acquire("a", 3, 60, 1);
    raw.release("a", tokens[0]);
    raw.expect(&Reply::released(tokens[0], "a"));
    let _ = raw.expect_granted("a", 3);
    raw.acquire("d", 4, 0, 60);
    raw.expect(&Reply::busy(4, "d"));
    raw.send([wire::release("b", tokens[1]), wire::acquire("d", 5, 0, 60)].concat());
    raw.expect(&Reply::released(tokens[1], "b"));
    let _ = raw.expect_granted("d", 5);
    // So does an expiry.
    wait_until("the expiry of a", PATIENCE, || {
        raw.acquire("e", 6, 0, 60);
        matches!(raw.read(), Reply::Granted { .. })
    });
    raw.acquire("f", 7, 0, 60);
    raw.expect(&Reply::busy(7, "f"));
}

#[test]
fn c33_acquires_in_flight() {
    let server = Server::start(&["--max-in-flight", "4"]);
    let mut holder = Raw::open(server.addr());
    let tokens: Vec<u64> = (0..5).map(|number| holder.take(format!("k-{number}"), 1, 60)).collect();
    let mut raw = Raw::open(server.addr());
    for number in 0..4 {
        raw.acquire(format!("k-{number}"), 10 + number, 60, 60);
    }
    raw.acquire("k-4", 14, 60, 60);
    raw.expect(&Reply::busy(14, "k-4"));
    raw.acquire("free", 15, 60, 60);
    raw.expect(&Reply::busy(15, "free"));
    // The limit is each connection's own.
    let mut other = Raw::open(server.addr());
    other.acquire("k-4", 20, 60, 60);
    // Another request is answered when there is room, or before.
    raw.release("k-3", 1);
    holder.release("k-0", tokens[0]);
    holder.expect(&Reply::released(tokens[0], "k-0"));
    let mut replies = [raw.read(), raw.read()];
    replies.sort();
    assert!(matches!(&replies[0], Reply::Granted { owner: 10, .. }), "{replies:?}");
    assert_eq!(replies[1], Reply::not_held(1, "k-3"));
    raw.acquire("free", 16, 60, 60);
    let _ = raw.expect_granted("free", 16);
    raw.acquire("k-4", 17, 60, 60);
    raw.acquire("k-4", 18, 60, 60);
    raw.expect(&Reply::busy(18, "k-4"));
}

#[test]
fn j97_connections() {
    let server = Server::start(&["--max-connections", "5"]);
    let mut raws: Vec<Raw> = (0..5).map(|_| Raw::open(server.addr())).collect();
    for _ in 0..20 {
        let mut refused = Raw::connect(server.addr());
        // In place of the greeting.
        refused.expect_error("too_many_connections");
    }
    let token = raws[4].take("k", 1, 60);
    raws.remove(0);
    let mut next = None;
    wait_until("room for a connection", PATIENCE, || {
        let mut raw = Raw::connect(server.addr());
        let greeted = raw.read_line().starts_with("TICKETING");
        next = greeted.then_some(raw);
        greeted
    });
    raws[3].release("k", token);
    raws[3].expect(&Reply::released(token, "k"));
}

#[test]
fn j97_strangers() {
    let server = Server::start(&["--max-unauthenticated", "3"]);
    let mut members: Vec<Raw> = (0..6).map(|_| Raw::open(server.addr())).collect();
    let mut strangers: Vec<Raw> = (0..3).map(|_| Raw::connect(server.addr())).collect();
    for stranger in &mut strangers {
        stranger.read_greeting();
    }
    Raw::connect(server.addr()).expect_error("too_many_connections");
    // Whoever has authenticated needs no place among the strangers.
    strangers[0].send("wrong\n");
    strangers[0].expect_error("auth_failed");
    wait_until("room for a stranger", PATIENCE, || {
        Raw::connect(server.addr()).read_line().starts_with("TICKETING")
    });
    let _ = members[5].take("k", 1, 60);
}

/// Reads nothing for longer than the server bears.
#[test]
fn j98_unread_answers_are_bounded_and_end_the_connection() {
    let server = Server::start(&["--max-unread-output", "65536"]);
    let before = server.usage();
    let mut deaf = Raw::open(server.addr());
    let mut writer = deaf.tcp().try_clone().unwrap();
    writer.set_write_timeout(Some(2 * PATIENCE)).unwrap();
    let start = Instant::now();
    let requests = wire::release("k".repeat(128), 1).repeat(10_000);
    // Ends with an error, when the server ends the connection.
    while std::io::Write::write_all(&mut writer, &requests).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the server bears it for ever");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(5), "cut off after {took:?}");
    let grown = server.usage().rss.saturating_sub(before.rss);
    assert!(grown < 4 * 1024 * 1024, "{grown} bytes for one client that does not read");
    // All the way, what is read is whole frames.
    while let Some(reply) = deaf.read_within(PATIENCE) {
        assert!(matches!(reply, Reply::NotHeld { .. } | Reply::Error(_)), "{reply:?}");
    }
    assert!(deaf.closed().is_some());
}

/// Whoever listens again soon enough is told why the connection ends.
#[test]
fn j98_unread_answers_end_with_their_reason() {
    let server = Server::builder().args(["--max-unread-output", "65536"]).admin().start();
    let mut deaf = Raw::open(server.addr());
    fill_with_unread_answers(&deaf);
    wait_until("the end of the server's patience", PATIENCE, || {
        server.metric("ticketing_errors_total") == Some(1.0)
    });
    let (last, took) = timed(|| {
        let mut last = None;
        while let Some(reply) = deaf.read_within(PATIENCE) {
            last = Some(reply);
        }
        last
    });
    // The server leaves two seconds for it.
    let too_late = took > Duration::from_millis(1500);
    assert!(
        last == Some(Reply::error("overloaded")) || too_late,
        "{last:?} after {took:?}: {:?}",
        deaf.closed()
    );
}

/// A client that reads slowly is slow, not dead.
#[test]
fn j98_a_slow_reader_is_served() {
    let server = Server::start(&["--max-unread-output", "65536"]);
    let mut slow = Raw::open(server.addr());
    let count = 100_000;
    let mut writer = slow.tcp().try_clone().unwrap();
    let stream = wire::release("k".repeat(128), 1).repeat(count);
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &stream));
    let mut witness = Raw::open(server.addr());
    let mut slowest = Duration::ZERO;
    for number in 0..count {
        slow.expect(&Reply::not_held(1, "k".repeat(128)));
        if number % 10_000 == 0 {
            sleep(Duration::from_secs(1));
            let (token, took) = timed(|| witness.take("witness", 1, 60));
            slowest = slowest.max(took);
            witness.release("witness", token);
            witness.expect(&Reply::released(token, "witness"));
        }
    }
    sender.join().unwrap().unwrap();
    assert!(slowest < Duration::from_secs(1), "a healthy client waited {slowest:?}");
}

/// So is one that reads very slowly: the server cuts off only who makes no progress at all,
/// and does not let much of its own buffers stand between the two of them.
#[test]
fn j98_a_very_slow_reader_is_served() {
    let server = Server::builder().args(["--max-unread-output", "65536"]).admin().start();
    let mut slow = Raw::open(server.addr());
    set_socket_recv_buffer_size(slow.tcp(), 64 * 1024).unwrap();
    let mut writer = slow.tcp().try_clone().unwrap();
    let stream = wire::release("k".repeat(128), 1).repeat(100_000);
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &stream));
    // About 200 KB a second.
    for _ in 0..28 {
        for _ in 0..730 {
            slow.expect(&Reply::not_held(1, "k".repeat(128)));
        }
        sleep(Duration::from_millis(500));
    }
    assert_eq!(server.metric("ticketing_errors_total"), Some(0.0));
    slow.reset();
    assert!(sender.join().unwrap().is_err(), "the server has read far more than it could answer");
}
