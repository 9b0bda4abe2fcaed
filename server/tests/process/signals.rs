//! How it stops.

use std::time::{Duration, Instant};

use ticketing_test_support::{Raw, Reply, Server, Signal};

/// What the contract allows, and something for a busy machine.
const STOPPED: Duration = Duration::from_secs(5 + 3);

#[test]
fn an_idle_server_stops_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        server.signal(signal);
        assert!(server.wait_exit().success(), "{}", server.log());
        server.wait_log("stopped");
    }
}

#[test]
fn a_draining_server_refuses_acquires_and_serves_releases() {
    let mut server = Server::builder().admin().start();
    let (mut holder, mut waiter, mut idle) =
        (Raw::open(server.addr()), Raw::open(server.addr()), Raw::open(server.addr()));
    let token = holder.take("k", 1, 60);
    let other = holder.take("other", 2, 60);
    waiter.acquire("k", 3, 60, 10);
    ticketing_test_support::wait_until("the waiter is queued", STOPPED, || {
        server.metric("ticketing_waiters") == Some(1.0)
    });
    let start = Instant::now();
    server.signal(Signal::TERM);
    waiter.expect(&Reply::busy(3, "k"));
    waiter.acquire("free", 4, 60, 10);
    waiter.expect(&Reply::busy(4, "free"));
    assert_eq!(server.admin_get("/readyz").0, 503);
    assert_eq!(server.admin_get("/healthz").0, 200);
    Raw::connect(server.addr()).expect_error("shutting_down");
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    holder.release("other", other);
    holder.expect(&Reply::released(other, "other"));
    for raw in [&mut holder, &mut waiter, &mut idle] {
        raw.expect_error("shutting_down");
    }
    drop((holder, waiter, idle));
    assert!(server.wait_exit().success(), "{}", server.log());
    assert!(start.elapsed() < STOPPED, "{:?}", start.elapsed());
}

#[test]
fn it_does_not_wait_for_a_holder_for_ever() {
    let mut server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    holder.take("k", 1, 250);
    let start = Instant::now();
    server.signal(Signal::TERM);
    holder.expect_error("shutting_down");
    // This client neither reads on nor closes.
    assert!(server.wait_exit().success());
    assert!(start.elapsed() < STOPPED, "{:?}", start.elapsed());
}

#[test]
fn a_second_signal_hurries() {
    let mut server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    holder.take("k", 1, 250);
    let start = Instant::now();
    server.signal(Signal::TERM);
    server.wait_log("stopping");
    server.signal(Signal::TERM);
    holder.expect_error("shutting_down");
    drop(holder);
    assert!(server.wait_exit().success());
    assert!(start.elapsed() < Duration::from_millis(2_400), "{:?}", start.elapsed());
}
