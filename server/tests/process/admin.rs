//! The admin pages.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_until};

#[test]
fn every_outcome_and_every_bound_has_a_metric() {
    let server = Server::builder().admin().args(["--max-waiters", "1"]).start();
    assert_eq!(server.admin_get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(server.admin_get("/readyz"), (200, "ready\n".to_owned()));

    let mut raw = Raw::open(server.addr());
    let token = raw.take("very-secret-key", 1, 60);
    raw.acquire("very-secret-key", 2, 0, 60);
    raw.expect(&Reply::timed_out(2, "very-secret-key"));
    raw.acquire("very-secret-key", 3, 60, 60);
    raw.acquire("very-secret-key", 4, 60, 60);
    raw.expect(&Reply::busy(4, "very-secret-key"));
    raw.release("very-secret-key", token + 100);
    raw.expect(&Reply::not_held(token + 100, "very-secret-key"));
    let value = |name: &str| server.metric(&format!("ticketing_{name}"));
    for (name, expected) in [
        ("connections", 1.0),
        ("unauthenticated_connections", 0.0),
        ("held_locks", 1.0),
        ("waiters", 1.0),
        ("grants_total", 1.0),
        ("timeouts_total", 1.0),
        ("busy_total", 1.0),
        ("not_held_total", 1.0),
        ("requests_total", 5.0),
        ("sessions_total", 1.0),
    ] {
        wait_until(name, PATIENCE, || value(name) == Some(expected));
    }
    raw.release("very-secret-key", token);
    raw.expect(&Reply::released(token, "very-secret-key"));
    raw.expect_granted("very-secret-key", 3);
    wait_until("the release is counted", PATIENCE, || value("releases_total") == Some(1.0));
    drop(raw);
    wait_until("the connection is gone", PATIENCE, || value("connections") == Some(0.0));

    let (_, page) = server.admin_get("/metrics");
    for bound in [
        "connections",
        "unauthenticated_connections",
        "held_locks",
        "waiters",
        "waiters_per_key",
        "tombstones",
        "in_flight",
        "unread_output_bytes",
    ] {
        assert!(page.contains(&format!("\nticketing_{bound}_max ")), "{bound}");
    }
    assert!(page.lines().filter(|line| line.contains("reason=")).count() >= 10);
    assert!(!page.contains("very-secret-key"), "keys are many, and nobody else's business");
}

#[test]
fn the_status_is_json() {
    let server = Server::builder().admin().start();
    let mut raw = Raw::open(server.addr());
    let token = raw.take("k", 1, 60);
    let status = || serde_json::from_str::<serde_json::Value>(&server.admin_get("/status").1).unwrap();
    wait_until("the lock shows", PATIENCE, || status()["locks"]["held"] == 1);
    let status = status();
    assert_eq!(status["mode"], "single");
    assert_eq!(status["ready"], true);
    assert_eq!(status["domain"], "0".repeat(32));
    assert_eq!(status["connections"]["open"], 1);
    assert_eq!(status["next_token"], (token + 1).to_string());
    assert_eq!(server.admin_get("/keys").0, 404);
}

#[test]
fn they_are_off_unless_asked_for() {
    let server = Server::start(&[]);
    assert!(!server.log().contains("admin="), "{}", server.log());
}

#[test]
fn whoever_stalls_does_not_keep_the_others_out() {
    let server = Server::builder().admin().start();
    let connect = || TcpStream::connect(server.admin_addr()).unwrap();
    for request in ["", "GET /healthz HTTP/1.1\r\nhost: ", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let stalled = (0..200).map(|_| {
            let mut stalled = connect();
            // It may have been cut already.
            let _ = stalled.write_all(request.as_bytes());
            stalled
        });
        let stalled = stalled.collect::<Vec<_>>();
        let start = Instant::now();
        assert_eq!(server.admin_get("/healthz").0, 200);
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        drop(stalled);
    }
}
