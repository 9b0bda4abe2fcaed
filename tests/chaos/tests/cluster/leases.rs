//! Leases while leaders come and go, and very many of them at once.

use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Network};
use ticketing_test_support::{Raw, Reply, wait_until};

use crate::PATIENCE;

/// A lease of ten seconds in which the leader changes three times, so that in the end
/// it is run by a process that was not there when it was granted.
#[test]
fn e40_a_lease_over_three_leaders() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let lease = Duration::from_secs(10);
    let mut holder = cluster.session(cluster.wait_leader());
    let asked = Instant::now();
    holder.acquire("key", 1, 0, 10);
    holder.expect_granted("key", 1);
    let granted = Instant::now();
    for part in [1, 5, 9] {
        std::thread::sleep((asked + lease * part / 10).saturating_duration_since(Instant::now()));
        let leader = cluster.wait_leader();
        cluster.node(leader).restart();
    }
    let mut next = cluster.session(cluster.wait_leader());
    next.acquire("key", 2, 60, 10);
    next.expect_granted("key", 2);
    let (longest, shortest) = (asked.elapsed(), granted.elapsed());
    assert!(longest >= lease, "{longest:?} after it was asked for");
    assert!(shortest < lease + Duration::from_secs(4), "{shortest:?} after it was granted");
}

/// Keys that are asked for in one piece.
const PIECE: u64 = 10_000;

fn take(session: &mut Raw, from: u64, lease: u8) {
    for number in from..from + PIECE {
        session.acquire(format!("storm-{number}"), number, 0, lease);
    }
    for number in from..from + PIECE {
        let reply = session.read();
        assert!(matches!(reply, Reply::Granted { owner, .. } if owner == number), "{reply:?}");
    }
}

/// A hundred thousand leases end in one second: the leader stays, and takes them back.
#[test]
fn e44_an_expiry_storm() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let leader = cluster.wait_leader();
    let term = cluster.status(leader).unwrap().term;
    let mut session = cluster.session(leader);
    let start = Instant::now();
    let end = start + Duration::from_secs(40);
    for piece in 0..10 {
        let left = end.saturating_duration_since(Instant::now());
        let lease = u8::try_from(left.as_secs()).unwrap().max(1);
        take(&mut session, piece * PIECE, lease);
        // They end in the same second.
        assert!(start.elapsed() < Duration::from_secs(35), "too slow to tell anything");
    }
    let held = || cluster.status(leader).map_or(u64::MAX, |status| status.held);
    assert_eq!(held(), 10 * PIECE);
    let until = end.checked_sub(Duration::from_millis(1500)).unwrap();
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    wait_until("the end of the first leases", PATIENCE, || held() < 10 * PIECE);
    let first = Instant::now();
    wait_until("the end of all leases", PATIENCE, || held() == 0);
    let took = first.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?} to take them back");
    let status = cluster.status(leader).unwrap();
    assert_eq!((status.role.as_str(), status.term), ("leader", term), "another leader was elected");
    session.acquire("storm-1", 7, 0, 5);
    session.expect_granted("storm-1", 7);
}
