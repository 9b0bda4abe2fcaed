//! What the server does when there is no more room.

use std::time::{Duration, Instant};

use ticketing_test_support::{Authority, PATIENCE, Raw, Server, wait_until};

#[test]
fn one_connection_too_many_is_told_so_and_a_free_place_is_used() {
    let server = Server::start(&["--max-connections", "2"]);
    let first = Raw::open(server.addr());
    let _second = Raw::open(server.addr());
    Raw::connect(server.addr()).expect_error("too_many_connections");
    drop(first);
    wait_until("a place is free", PATIENCE, || {
        Raw::connect(server.addr()).read_line().starts_with("TICKETING/1")
    });
}

#[test]
fn clients_that_do_not_authenticate_keep_nobody_out_for_long() {
    let server = Server::builder().admin().args(["--max-unauthenticated", "2"]).start();
    let mut authenticated = Raw::open(server.addr());
    let (mut silent, _other) = (Raw::connect(server.addr()), Raw::connect(server.addr()));
    silent.read_greeting();
    wait_until("both are counted", PATIENCE, || {
        server.metric("ticketing_unauthenticated_connections") == Some(2.0)
    });
    Raw::connect(server.addr()).expect_error("too_many_connections");
    authenticated.take("k", 1, 10);
    silent.expect_error("auth_failed");
    drop(silent);
    wait_until("a place is free", PATIENCE, || {
        Raw::connect(server.addr()).read_line().starts_with("TICKETING/1")
    });
}

#[test]
fn without_descriptors_those_who_are_in_go_on_and_the_log_stays_short() {
    let server = Server::builder().open_files(40).start();
    let mut early = Raw::open(server.addr());
    let crowd = (0..60).map(|_| Raw::connect(server.addr())).collect::<Vec<_>>();
    server.wait_log("no connection can be accepted");
    let token = early.take("k", 1, 10);
    let cpu = server.usage().cpu_ticks;
    std::thread::sleep(Duration::from_secs(1));
    assert!(server.usage().cpu_ticks - cpu < 30, "it must not spin");
    drop(crowd);
    server.wait_log("connections can be accepted again");
    let mut late = Raw::open(server.addr());
    late.release("k", token);
    late.expect(&ticketing_test_support::Reply::released(token, "k"));
    let told = server.log().matches("no connection can be accepted").count();
    assert!(told <= 3, "told {told} times");
}

#[test]
fn a_stalled_tls_handshake_holds_nobody_up() {
    let authority = Authority::new();
    let server = Server::builder().tls(&authority.issue("server", &["localhost"])).start();
    let start = Instant::now();
    let mut stalled = Raw::connect(server.addr());
    let mut plain = Raw::connect(server.addr());
    plain.send(b"this is no TLS at all\n");
    let mut good = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
    good.handshake(b"", false);
    good.take("k", 1, 10);
    stalled.expect_closed();
    assert!(start.elapsed() >= Duration::from_secs(4) && start.elapsed() < PATIENCE);
    server.wait_log("TLS handshake failed");
}
