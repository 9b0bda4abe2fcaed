//! Every request against every state of its key, and what must not depend on more.

use std::thread;

use ticketing_test_support::{MATRIX_ARGS, Raw, Reply, Server, play_matrix, wire};

#[test]
fn c22_full_matrix_of_base_version_1() {
    let server = Server::start(&MATRIX_ARGS);
    play_matrix(server.addr(), false, "base");
}

#[test]
fn c22_full_matrix_with_extension_1() {
    let server = Server::start(&MATRIX_ARGS);
    play_matrix(server.addr(), true, "extended");
}

#[test]
fn c25_a_release_succeeds_once() {
    let server = Server::start(&[]);
    let mut raws = [Raw::open(server.addr()), Raw::open(server.addr())];
    let keys: Vec<String> = (0..400).map(|number| format!("k-{number}")).collect();
    let tokens: Vec<u64> = keys.iter().map(|key| raws[0].take(key, 1, 60)).collect();
    let releases: Vec<Vec<u8>> =
        keys.iter().zip(&tokens).map(|(key, token)| wire::release(key, *token).repeat(3)).collect();
    thread::scope(|scope| {
        for raw in &mut raws {
            let stream = releases.concat();
            scope.spawn(move || raw.send(stream));
        }
    });
    let mut confirmed = vec![0; keys.len()];
    for raw in &mut raws {
        for (number, (key, token)) in keys.iter().zip(&tokens).enumerate() {
            for _ in 0..3 {
                match raw.read() {
                    reply if reply == Reply::released(*token, key) => confirmed[number] += 1,
                    reply => assert_eq!(reply, Reply::not_held(*token, key)),
                }
            }
        }
    }
    assert_eq!(confirmed, vec![1; keys.len()]);
}

#[test]
fn c26_a_stale_release_leaves_the_new_holder_alone() {
    let server = Server::start(&[]);
    let mut old = Raw::open(server.addr());
    let mut new = Raw::open(server.addr());
    let stale = old.take("k", 1, 1);
    new.acquire("k", 2, 10, 60);
    let token = new.expect_granted("k", 2);
    for _ in 0..3 {
        old.release("k", stale);
        old.expect(&Reply::not_held(stale, "k"));
    }
    // The right token under another key is as wrong.
    old.release("other", token);
    old.expect(&Reply::not_held(token, "other"));
    old.acquire("k", 3, 0, 10);
    old.expect(&Reply::timed_out(3, "k"));
    new.release("k", token);
    new.expect(&Reply::released(token, "k"));
}

#[test]
fn c27_an_owner_is_no_identity() {
    let server = Server::start(&[]);
    let mut first = Raw::open(server.addr());
    let mut second = Raw::open(server.addr());
    let token = first.take("k", 7, 60);
    // Not re-entrant, on the same connection or another one.
    for raw in [&mut first, &mut second] {
        raw.acquire("k", 7, 0, 60);
        raw.expect(&Reply::timed_out(7, "k"));
    }
    // The same owner three times in one queue is three waiters; elsewhere it is nobody.
    first.acquire("k", 7, 60, 60);
    first.acquire("k", 7, 60, 60);
    first.take("elsewhere", 7, 60);
    second.acquire("k", 7, 60, 60);
    second.take("elsewhere-too", 7, 60);
    let mut last = token;
    first.release("k", token);
    first.expect(&Reply::released(token, "k"));
    for raw in [0, 0, 1] {
        let raw = if raw == 0 { &mut first } else { &mut second };
        let next = raw.expect_granted("k", 7);
        assert!(next > last);
        last = next;
        raw.release("k", next);
        raw.expect(&Reply::released(next, "k"));
    }
    let _ = second.take("k", 7, 60);
}
