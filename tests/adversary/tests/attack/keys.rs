//! Keys, leases and waits at the edges of what is legal.

use std::time::Duration;

use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::timed;

#[test]
fn a08_illegal_keys_are_refused() {
    let server = Server::start(&[]);
    let illegal: [&[u8]; 17] = [
        b"",
        b" ",
        b"a b",
        b"trailing ",
        b"\r",
        b"a\r",
        b"\xff",
        b"\x80",
        b"a\xc3",
        b"\xc0\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ];
    for key in illegal {
        for frame in [wire::acquire(key, 1, 0, 10), wire::acquire(key, 1, 10, 10), wire::release(key, 1)] {
            let mut raw = Raw::open(server.addr());
            raw.send(frame);
            raw.expect_error("bad_key");
        }
        for frame in [wire::cancel(key, 1), wire::place(key, 1), wire::verify(key, 1)] {
            let mut raw = Raw::open_extended(server.addr());
            raw.send(frame);
            raw.expect_error("bad_key");
        }
    }
}

#[test]
fn a08_legal_keys_are_taken_byte_by_byte() {
    let server = Server::start(&[]);
    let mut raw = Raw::open(server.addr());
    let longest = "🎟".repeat(32);
    let legal = [
        "\0",
        "\0\0",
        "\t",
        "\u{b}",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{85}",
        "\u{9f}",
        "\u{a0}",
        "\u{feff}",
        "\u{2028}",
        "\u{e9}",
        "e\u{301}",
        "\u{10ffff}",
        "\u{fffd}",
        "ключ",
        "تذكرة",
        &longest,
        "A",
        "a",
        "..",
        "a/../b",
    ];
    // All are held at one time: no two of them are one key.
    let mut tokens = Vec::new();
    for (owner, key) in (1..).zip(legal) {
        tokens.push(raw.take(key, owner, 60));
        raw.acquire(key, 0, 0, 10);
        raw.expect(&Reply::timed_out(0, key));
    }
    for (key, token) in legal.into_iter().zip(tokens) {
        raw.release(key, token);
        raw.expect(&Reply::released(token, key));
    }
}

#[test]
fn a09_leases_are_refused_never_clamped() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let _ = holder.take("held", 1, 60);
    for lease in [0, 251, 252, 254, 255] {
        for (key, wait) in [("free", 0), ("free", 255), ("held", 0), ("held", 1)] {
            let mut raw = Raw::open(server.addr());
            raw.acquire(key, 1, wait, lease);
            raw.expect_error("bad_lease");
        }
    }
    let mut raw = Raw::open(server.addr());
    for lease in [1, 2, 249, 250] {
        let token = raw.take("free", 2, lease);
        raw.release("free", token);
        raw.expect(&Reply::released(token, "free"));
    }
}

#[test]
fn a09_a_wait_of_0_is_one_try_and_255_is_legal() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let mut raw = Raw::open(server.addr());
    raw.acquire("k", 2, 255, 10);
    raw.acquire("k", 3, 0, 10);
    raw.expect(&Reply::timed_out(3, "k"));
    let ((), took) = timed(|| {
        raw.acquire("k", 4, 1, 10);
        raw.expect(&Reply::timed_out(4, "k"));
    });
    assert!(took >= Duration::from_secs(1), "a wait of one second ended after {took:?}");
    raw.expect_silence(Duration::from_secs(1));
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let _ = raw.expect_granted("k", 2);
}
