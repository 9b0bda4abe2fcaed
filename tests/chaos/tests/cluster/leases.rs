//! Leases while leaders come and go, and very many of them at once.

use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Network};
use ticketing_test_support::{Raw, Reply, wait_until};

use crate::PATIENCE;
use crate::client::Client;

/// A lease of ten seconds in which the leader changes three times, so that in the end
/// it is run by a process that was not there when it was granted.
#[test]
fn e40_a_lease_over_three_leaders() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let lease = Duration::from_secs(10);
    let asked = Instant::now();
    Client::new(&cluster).take("key", 0, 10);
    let granted = Instant::now();
    for part in [1, 5, 9] {
        std::thread::sleep((asked + lease * part / 10).saturating_duration_since(Instant::now()));
        let leader = cluster.wait_leader();
        cluster.node(leader).restart();
    }
    Client::new(&cluster).take("key", 60, 10);
    let (longest, shortest) = (asked.elapsed(), granted.elapsed());
    assert!(longest >= lease, "{longest:?} after it was asked for");
    assert!(shortest < lease + Duration::from_secs(4), "{shortest:?} after it was granted");
}

/// Keys that are asked for in one piece.
const PIECE: u64 = 10_000;

/// Takes a piece; returns how many of its keys were refused because a leader gave way.
fn take_piece(session: &mut Raw, from: u64, lease: u8) -> u64 {
    for number in from..from + PIECE {
        session.acquire(format!("storm-{number}"), number, 0, lease);
    }
    let mut refused = 0;
    for number in from..from + PIECE {
        match session.read() {
            Reply::Granted { owner, .. } if owner == number => {}
            Reply::Busy { owner, .. } if owner == number => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    refused
}

/// A hundred thousand leases end in one second: the leader stays, and takes them back.
#[test]
fn e44_an_expiry_storm() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let leader = cluster.wait_leader();
    let mut session = cluster.session(leader);
    let start = Instant::now();
    let end = start + Duration::from_secs(40);
    let mut refused = 0;
    for piece in 0..10 {
        // All of them end in the same second.
        let left = end.saturating_duration_since(Instant::now());
        assert!(left > Duration::from_secs(5), "too slow to tell anything");
        refused += take_piece(&mut session, piece * PIECE, u8::try_from(left.as_secs()).unwrap());
    }
    let status = || cluster.status(leader).unwrap();
    let held = || status().held;
    assert_eq!(held(), 10 * PIECE - refused);
    let term = status().term;
    let until = end.checked_sub(Duration::from_millis(1500)).unwrap();
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    wait_until("the end of the first leases", PATIENCE, || held() < 10 * PIECE - refused);
    let first = Instant::now();
    wait_until("the end of all leases", PATIENCE, || held() == 0);
    let took = first.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?} to take them back");
    let status = status();
    assert_eq!((status.role.as_str(), status.term), ("leader", term), "another leader was elected");
    assert!(refused < PIECE, "{refused}");
    Client::new(&cluster).take("storm-1", 0, 5);
}
