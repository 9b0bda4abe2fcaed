//! Extension 1: only where both ends want it, and then as it is written.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ticketing_test_support::{Raw, Reply, Server, wire};

#[test]
fn x01_base_version_1_never_sees_the_extension() {
    let server = Server::start(&[]);
    let mut base = Raw::open(server.addr());
    let mut extended = Raw::open_extended(server.addr());
    // A grant at once, one out of the queue, one by expiry: all of them `A`.
    let token = base.take("k", 1, 60);
    base.acquire("k", 2, 60, 1);
    base.release("k", token);
    base.expect(&Reply::released(token, "k"));
    let _ = base.expect_granted("k", 2);
    base.acquire("k", 3, 60, 60);
    let token = base.expect_granted("k", 3);
    // Others use the extension on its keys and owners.
    base.acquire("k", 4, 60, 60);
    base.release("fence", 1);
    base.expect(&Reply::not_held(1, "fence"));
    extended.send(
        [wire::place("k", 4), wire::cancel("k", 4), wire::place("k", 4), wire::verify("k", 3)].concat(),
    );
    extended.expect(&Reply::place(4, 1, 1, "k"));
    extended.expect(&Reply::place(4, 1, 1, "k"));
    extended.expect(&Reply::GrantedUntil { token, owner: 3, ends_ms: 0, key: b"k".to_vec() });
    base.expect_silence(Duration::from_millis(200));
    extended.send(wire::verify("k", 4));
    extended.expect(&Reply::busy(4, "k"));
    base.expect(&Reply::busy(4, "k"));
    for op in [wire::cancel("k", 3), wire::place("k", 3), wire::verify("k", 3)] {
        let mut base = Raw::open(server.addr());
        base.send(op);
        base.expect_error("bad_op");
    }
}

#[test]
fn x02_the_end_of_a_grant_is_told_and_safe() {
    let server = Server::start(&[]);
    let mut raw = Raw::open_extended(server.addr());
    let mut other = Raw::open(server.addr());
    for lease in [1, 10, 250] {
        let key = format!("now-{lease}");
        let sent = Instant::now();
        raw.acquire(&key, 1, 0, lease);
        let (_, ends_ms) = raw.expect_granted_until(&key, 1);
        let least = u32::from(lease) * 1000;
        let most = least + u32::try_from(sent.elapsed().as_millis()).unwrap();
        assert!((least..=most).contains(&ends_ms), "{ends_ms} ms for a lease of {lease} s");
    }
    // Out of the queue: nobody else gets the key before the end that was told.
    let token = other.take("queued", 1, 60);
    let sent = Instant::now();
    raw.acquire("queued", 2, 60, 1);
    sleep(Duration::from_millis(1500));
    other.release("queued", token);
    other.expect(&Reply::released(token, "queued"));
    let (_, ends_ms) = raw.expect_granted_until("queued", 2);
    assert!(ends_ms >= 2400, "{ends_ms} ms, although it waited for 1500");
    other.acquire("queued", 3, 60, 10);
    let _ = other.expect_granted("queued", 3);
    let took = sent.elapsed();
    assert!(
        took >= Duration::from_millis(ends_ms.into()),
        "the next holder came after {took:?} of {ends_ms} ms"
    );
}

#[test]
fn x03_cancel() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let mut raw = Raw::open_extended(server.addr());
    let mut other = Raw::open_extended(server.addr());
    let token = holder.take("k", 1, 60);
    raw.send(
        [wire::acquire("k", 2, 60, 60), wire::acquire("k", 3, 60, 60), wire::acquire("k", 2, 60, 60)]
            .concat(),
    );
    raw.send(wire::place("k", 3));
    raw.expect(&Reply::place(3, 2, 3, "k"));
    // Not another connection's, not another owner's, not another key's.
    other.send([wire::cancel("k", 2), wire::place("k", 3)].concat());
    other.expect(&Reply::place(3, 2, 3, "k"));
    raw.send([wire::cancel("k", 9), wire::cancel("other", 2), wire::place("k", 3)].concat());
    raw.expect(&Reply::place(3, 2, 3, "k"));
    // Each of that owner.
    raw.send([wire::cancel("k", 2), wire::place("k", 3)].concat());
    raw.expect(&Reply::busy(2, "k"));
    raw.expect(&Reply::busy(2, "k"));
    raw.expect(&Reply::place(3, 1, 1, "k"));
    // Twice is once; and after the grant it is nothing.
    raw.send(wire::cancel("k", 2));
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let (token, _) = raw.expect_granted_until("k", 3);
    raw.send([wire::cancel("k", 3), wire::cancel("k", 3), wire::release("k", token)].concat());
    raw.expect(&Reply::released(token, "k"));
    // The same owner may ask again.
    raw.acquire("k", 2, 0, 60);
    let _ = raw.expect_granted_until("k", 2);
    raw.expect_silence(Duration::from_millis(200));
}

#[test]
fn x04_place() {
    let server = Server::start(&[]);
    let mut raw = Raw::open_extended(server.addr());
    let mut base = Raw::open(server.addr());
    let expect = |raw: &mut Raw, owner, place, waiters| {
        raw.send(wire::place("k", owner));
        raw.expect(&Reply::place(owner, place, waiters, "k"));
    };
    expect(&mut raw, 1, 0, 0);
    let mut token = base.take("k", 1, 60);
    // The holder is not in the queue.
    expect(&mut raw, 1, 0, 0);
    for owner in 2..6 {
        base.acquire("k", owner, 60, 60);
        base.release("fence", 1);
        base.expect(&Reply::not_held(1, "fence"));
    }
    for served in 0..4 {
        // Of an owner on any connection.
        for owner in 2..6 {
            let place = u32::try_from(owner).unwrap().saturating_sub(served + 1);
            expect(&mut raw, owner, place, 4 - served);
        }
        base.release("k", token);
        base.expect(&Reply::released(token, "k"));
        token = base.expect_granted("k", u64::from(served) + 2);
    }
    expect(&mut raw, 5, 0, 0);
}

#[test]
fn x05_verify() {
    let server = Server::start(&[]);
    let mut lost = Raw::open_extended(server.addr());
    let mut raw = Raw::open_extended(server.addr());
    let held = |token, owner, key: &str| Reply::GrantedUntil {
        token,
        owner,
        ends_ms: 0,
        key: key.as_bytes().to_vec(),
    };
    // Granted, and the answer was lost.
    lost.acquire("k", 1, 0, 60);
    let (token, _) = lost.expect_granted_until("k", 1);
    for _ in 0..2 {
        raw.send(wire::verify("k", 1));
        raw.expect(&held(token, 1, "k"));
    }
    // Queued: it is taken out, and both are told so.
    lost.send(
        [wire::acquire("k", 2, 60, 60), wire::acquire("k", 3, 60, 60), wire::acquire("k", 2, 60, 60)]
            .concat(),
    );
    lost.send(wire::place("k", 3));
    lost.expect(&Reply::place(3, 2, 3, "k"));
    raw.send([wire::verify("k", 2), wire::place("k", 3)].concat());
    let mut replies = [raw.read(), raw.read()];
    replies.sort();
    assert_eq!(replies, [Reply::busy(2, "k"), Reply::place(3, 1, 1, "k")]);
    lost.expect(&Reply::busy(2, "k"));
    lost.expect(&Reply::busy(2, "k"));
    // Never asked: it never will be granted, on any connection, held or free.
    raw.send(wire::verify("late", 4));
    raw.expect(&Reply::busy(4, "late"));
    for (raw, wait) in [(&mut lost, 0), (&mut raw, 60)] {
        raw.acquire("late", 4, wait, 60);
        raw.expect(&Reply::busy(4, "late"));
        raw.acquire("k", 2, wait.max(1), 60);
        raw.expect(&Reply::busy(2, "k"));
    }
    // Another owner of the key and the owner under another key are not meant.
    raw.acquire("late", 5, 0, 60);
    let _ = raw.expect_granted_until("late", 5);
    raw.acquire("elsewhere", 4, 0, 60);
    let _ = raw.expect_granted_until("elsewhere", 4);
    // Released: it does not hold the key.
    raw.release("k", token);
    raw.expect(&Reply::released(token, "k"));
    let _ = lost.expect_granted_until("k", 3);
    raw.send(wire::verify("k", 1));
    raw.expect(&Reply::busy(1, "k"));
}

#[test]
fn x06_a_verify_without_room_for_its_word_ends_the_connection() {
    let server = Server::start(&["--max-tombstones", "8"]);
    let mut raw = Raw::open_extended(server.addr());
    for owner in [2, 3] {
        raw.send(wire::verify("k", owner));
        raw.expect(&Reply::busy(owner, "k"));
    }
    // The same word again needs no more room; nor does the other word.
    raw.send(wire::verify("k", 2));
    raw.expect(&Reply::busy(2, "k"));
    raw.acquire("k", 9, 0, 60);
    let (token, _) = raw.expect_granted_until("k", 9);
    raw.send(wire::verify("k", 9));
    raw.expect(&Reply::GrantedUntil { token, owner: 9, ends_ms: 0, key: b"k".to_vec() });
    raw.send(wire::verify("k", 4));
    raw.expect_error("overloaded");
    // What was said holds on, and others have room.
    let mut raw = Raw::open_extended(server.addr());
    raw.acquire("k", 3, 0, 60);
    raw.expect(&Reply::busy(3, "k"));
    raw.acquire("k", 4, 0, 60);
    raw.expect(&Reply::timed_out(4, "k"));
    raw.send(wire::verify("k", 4));
    raw.expect(&Reply::busy(4, "k"));
}

/// A flood of verifies hurts the flooder, and nobody whose session is shared by many.
#[test]
fn x06_a_flood_of_verifies_takes_no_room_from_others() {
    let server = Server::start(&["--max-tombstones", "1000"]);
    let mut shared = Raw::open_extended(server.addr());
    let _holder = Raw::open(server.addr()).take("held", 1, 60);
    shared.acquire("held", 2, 60, 10);
    for flooder in 0..8 {
        let mut raw = Raw::open_extended(server.addr());
        raw.send(
            (0..1000).flat_map(|owner| wire::verify(format!("flood-{flooder}"), owner)).collect::<Vec<_>>(),
        );
        assert_eq!(raw.read_to_end().last(), Some(&Reply::error("overloaded")));
        shared.send(wire::verify("lost", flooder));
        shared.expect(&Reply::busy(flooder, "lost"));
    }
}

/// The grant waits behind answers that nobody reads, and its owner verifies it on
/// another connection. When the first one is torn down, the grant must stay.
#[test]
fn x07_a_verified_grant_is_not_given_back() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let mut deaf = Raw::open_extended(server.addr());
    deaf.acquire("k", 2, 60, 60);
    crate::closing::fill_with_unread_answers(&deaf);
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let mut raw = Raw::open_extended(server.addr());
    raw.send(wire::verify("k", 2));
    let Reply::GrantedUntil { token, owner: 2, ends_ms: 0, .. } = raw.read() else {
        panic!("owner 2 holds it")
    };
    deaf.reset();
    holder.acquire("k", 3, 2, 60);
    holder.expect(&Reply::timed_out(3, "k"));
    raw.release("k", token);
    raw.expect(&Reply::released(token, "k"));
}
