//! Many clients at random, and a judge that knows only what a lock service promises.

use std::time::Duration;

use ticketing_adversary::Load;
use ticketing_history::{Rules, Summary, check};
use ticketing_test_support::Server;

#[track_caller]
fn run(server: &Server, load: &Load, rules: &Rules) -> Summary {
    let history = load.run(server.addr());
    let violations = check(&history, rules);
    assert!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    let summary = history.summary();
    assert!(summary.granted > 300 && summary.released > 200, "too little happened: {summary:?}");
    summary
}

#[test]
fn h1_many_clients_on_few_keys() {
    let server = Server::start(&[]);
    let summary = run(&server, &Load::default(), &Rules::default());
    assert!(summary.timed_out > 0 && summary.not_held > 0, "{summary:?}");
}

#[test]
fn h2_connections_come_and_go() {
    let server = Server::start(&[]);
    let load = Load { seed: 2, hang_up: 1, leases: &[2, 3, 30], ..Load::default() };
    let summary = run(&server, &load, &Rules::default());
    assert!(summary.indeterminate > 0, "{summary:?}");
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
    run(&server, &load, &Rules::default());
}

#[test]
fn h4_waiters_cancel() {
    let server = Server::start(&[]);
    let load = Load { seed: 4, cancel: Some(20), hang_up: 1, ..Load::default() };
    let summary = run(&server, &load, &Rules::default());
    assert!(summary.busy > 0, "{summary:?}");
}

#[test]
fn h5_every_limit_is_in_reach() {
    let server = Server::start(&["--max-waiters-per-key", "4", "--max-in-flight", "6", "--max-held", "9"]);
    let load = Load { seed: 5, keys: 12, ..Load::default() };
    let summary = run(&server, &load, &Rules { busy: true, ..Rules::default() });
    assert!(summary.busy > 0, "{summary:?}");
}
