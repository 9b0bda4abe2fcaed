//! Many clients at random, and an oracle that knows only what a lock service promises.

use std::time::Duration;

use ticketing_adversary::{Expect, Load, Summary, check};
use ticketing_test_support::Server;

#[track_caller]
fn run(server: &Server, load: &Load, expect: Expect) -> Summary {
    match check(&load.run(server.addr()), expect) {
        Ok(summary) => {
            assert!(summary.granted > 300 && summary.released > 200, "too little happened: {summary:?}");
            summary
        }
        Err(violations) => {
            panic!("{} broken promises: {:#?}", violations.len(), &violations[..violations.len().min(5)])
        }
    }
}

#[test]
fn h1_many_clients_on_few_keys() {
    let server = Server::start(&[]);
    let summary = run(&server, &Load::default(), Expect { dense: true, busy: false });
    assert!(summary.timed_out > 0 && summary.not_held > 0, "{summary:?}");
}

#[test]
fn h2_connections_come_and_go() {
    let server = Server::start(&[]);
    let load = Load { seed: 2, hang_up: 1, leases: &[2, 3, 30], ..Load::default() };
    let summary = run(&server, &load, Expect::default());
    assert!(summary.unanswered > 0, "{summary:?}");
}

#[test]
fn h3_locks_are_forgotten_and_expire() {
    let server = Server::start(&[]);
    let load = Load {
        seed: 3,
        keys: 40,
        forget: 3,
        leases: &[1, 2],
        hold: Duration::from_millis(40),
        duration: Duration::from_secs(8),
        ..Load::default()
    };
    run(&server, &load, Expect { dense: true, busy: false });
}

#[test]
fn h4_waiters_cancel() {
    let server = Server::start(&[]);
    let load = Load { seed: 4, cancel: Some(20), hang_up: 1, ..Load::default() };
    let summary = run(&server, &load, Expect::default());
    assert!(summary.busy > 0, "{summary:?}");
}

#[test]
fn h5_every_limit_is_in_reach() {
    let server = Server::start(&["--max-waiters-per-key", "4", "--max-in-flight", "6", "--max-held", "9"]);
    let load = Load { seed: 5, keys: 12, ..Load::default() };
    let summary = run(&server, &load, Expect { busy: true, dense: true });
    assert!(summary.busy > 0, "{summary:?}");
}
