//! Connections that end, and what must end with them.

use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use rustix::net::sockopt;
use ticketing_test_support::{PATIENCE, Raw, Reply, place, wait_for_queue, wait_until, wire};

use crate::{in_every_mode, timed};

#[test]
fn a12_half_close_is_a_close() {
    in_every_mode(|server| {
        let mut holder = Raw::open(server.addr());
        let token = holder.take("held", 1, 60);
        let mut raw = Raw::open(server.addr());
        let mut frames = wire::acquire("held", 2, 60, 10);
        for number in 0..500 {
            frames.extend(wire::acquire(format!("free-{number}"), number, 0, 60));
            frames.extend(wire::release("held", 1));
        }
        // A frame without its LF has not arrived.
        frames.extend_from_slice(&wire::acquire("unfinished", 3, 0, 60)[..15]);
        raw.send(frames);
        raw.half_close();
        let (replies, took) = timed(|| raw.read_to_end());
        assert!(took < Duration::from_secs(4), "closed after {took:?}");
        assert_eq!(replies.len(), 1000, "{:?}", replies.last());
        for (number, pair) in (0..).zip(replies.chunks(2)) {
            assert!(matches!(&pair[0], Reply::Granted { owner, .. } if *owner == number), "{pair:?}");
            assert_eq!(pair[1], Reply::not_held(1, "held"));
        }
        // The dead waiter is passed over: the next one has the lock.
        let mut next = Raw::open(server.addr());
        next.acquire("held", 4, 60, 10);
        holder.release("held", token);
        holder.expect(&Reply::released(token, "held"));
        assert_eq!(next.expect_granted("held", 4), token + 501);
        let _ = next.take("unfinished", 5, 10);
        // Grants that were answered stay.
        next.acquire("free-7", 6, 0, 10);
        next.expect(&Reply::timed_out(6, "free-7"));
    });
}

/// One request is enough: what was done for a client that has said its last word is told.
#[test]
fn a12_what_was_decided_before_the_end_is_told() {
    in_every_mode(|server| {
        for (number, last) in (0..).zip([&b""[..], b"Z"]) {
            let key = format!("k-{number}");
            let end = |raw: &mut Raw, first: Vec<u8>| {
                raw.send([&first, last].concat());
                if last.is_empty() {
                    raw.half_close();
                }
            };
            let mut raw = Raw::open(server.addr());
            end(&mut raw, wire::acquire(&key, 1, 0, 60));
            let token = raw.expect_granted(&key, 1);
            let mut raw = Raw::open(server.addr());
            end(&mut raw, wire::release(&key, token));
            raw.expect(&Reply::released(token, &key));
            let _ = raw.read_to_end();
        }
    });
}

#[test]
fn a12_an_idle_half_close_is_answered_with_a_close() {
    in_every_mode(|server| {
        let mut raw = Raw::open(server.addr());
        raw.half_close();
        let (_, took) = timed(|| raw.expect_closed());
        assert!(took < Duration::from_secs(4), "closed after {took:?}");
    });
}

/// A connection that does not read while its waiter is served: the grant is decided,
/// and not one byte of it leaves. When it is torn down, the lock goes on at once, long
/// before its lease is over.
#[test]
fn c34_an_undelivered_grant_is_given_back() {
    in_every_mode(|server| {
        let mut holder = Raw::open(server.addr());
        let token = holder.take("k", 1, 60);
        let mut deaf = Raw::open(server.addr());
        deaf.acquire("k", 2, 250, 250);
        fill_with_unread_answers(&deaf);
        let mut next = Raw::open(server.addr());
        next.acquire("k", 3, 60, 10);
        holder.release("k", token);
        holder.expect(&Reply::released(token, "k"));
        next.expect_silence(Duration::from_millis(300));
        deaf.reset();
        let (second, took) = timed(|| next.expect_granted("k", 3));
        assert!(second > token + 1, "the grant in between took a token too");
        assert!(took < Duration::from_secs(3), "given back after {took:?}");
    });
}

/// Sends requests until the server, whose answers nobody reads, stops reading: every
/// buffer on the way to the client is full.
pub(crate) fn fill_with_unread_answers(deaf: &Raw) {
    sockopt::set_socket_recv_buffer_size(deaf.tcp(), 4096).unwrap();
    let requests = wire::release("k".repeat(128), 1).repeat(1000);
    let mut writer = deaf.tcp().try_clone().unwrap();
    writer.set_write_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut sent = 0;
    while let Ok(written) = writer.write(&requests) {
        sent += written;
        assert!(sent < 256 * 1024 * 1024, "the server reads on and on");
    }
}

#[test]
fn c34_waiters_of_dead_connections_are_passed_over() {
    in_every_mode(|server| {
        let mut holder = Raw::open(server.addr());
        for round in 0..50 {
            let key = format!("k-{round}");
            let token = holder.take(&key, 1, 60);
            let dead: Vec<Raw> = (0..6)
                .map(|number| {
                    let mut raw = Raw::open(server.addr());
                    raw.acquire(&key, 10 + number, 250, 250);
                    raw
                })
                .collect();
            let mut last = Raw::open_extended(server.addr());
            wait_for_queue(&mut last, &key, 6);
            last.acquire(&key, 20, 250, 10);
            for (number, raw) in dead.into_iter().enumerate() {
                match number % 3 {
                    0 => raw.reset(),
                    1 => drop(raw),
                    _ => raw.tcp().shutdown(std::net::Shutdown::Write).unwrap(),
                }
            }
            wait_until("one waiter", PATIENCE, || place(&mut last, &key, 20) == (1, 1));
            holder.release(&key, token);
            holder.expect(&Reply::released(token, &key));
            let (next, _) = last.expect_granted_until(&key, 20);
            assert_eq!(next, token + 1);
            last.release(&key, next);
            last.expect(&Reply::released(next, &key));
        }
    });
}

/// The same race by chance, many times: whatever the moment at which a waiter dies,
/// its key is not lost for longer than the lease.
#[test]
fn c34_a_waiter_that_dies_while_it_is_served() {
    in_every_mode(|server| {
        let mut holder = Raw::open(server.addr());
        let mut next = Raw::open(server.addr());
        let keys: Vec<String> = (0..150).map(|round| format!("k-{round}")).collect();
        for (round, key) in (0..).zip(&keys) {
            let token = holder.take(key, 1, 60);
            let mut dying = Raw::open_extended(server.addr());
            dying.acquire(key, 2, 60, 2);
            wait_until("its place", PATIENCE, || place(&mut dying, key, 2) == (1, 1));
            next.acquire(key, 3 + round, 60, 60);
            std::thread::scope(|scope| {
                scope.spawn(|| holder.release(key, token));
                sleep(Duration::from_micros(10 * (round % 15)));
                if round % 2 == 0 {
                    dying.reset();
                } else {
                    drop(dying);
                }
            });
            holder.expect(&Reply::released(token, key));
        }
        // Those that were granted run out after their two seconds.
        for _ in &keys {
            assert!(matches!(next.read(), Reply::Granted { .. }));
        }
    });
}

#[test]
fn c34_a_delivered_grant_outlives_its_connection() {
    in_every_mode(|server| {
        let mut gone = Raw::open(server.addr());
        let token = gone.take("k", 1, 3);
        gone.reset();
        let mut other = Raw::open(server.addr());
        other.acquire("k", 2, 0, 10);
        other.expect(&Reply::timed_out(2, "k"));
        // On whichever connection its release comes.
        other.release("k", token);
        other.expect(&Reply::released(token, "k"));
        let _ = other.take("k", 3, 10);
    });
}
