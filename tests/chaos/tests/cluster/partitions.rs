//! Nodes that do not hear each other. Clients hear all of them.

use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Cut, Host, Load};
use ticketing_test_support::{Reply, wait_until};

use crate::{PATIENCE, all, heard, is_definite, judge, lab, load, note};

/// The leader is alone, or with one of four others: it says nothing definite, and the
/// majority goes on without it.
fn isolate_the_leader(nodes: usize, with: usize) {
    let Some(network) = lab(nodes) else { return };
    let cluster = Cluster::builder().nodes(nodes).start(&network);
    let running = cluster.load(&Load { leases: &[1, 2, 5], oversleep: 2, keys: 20, ..load() });
    running.wait_granted(100, PATIENCE);
    let leader = cluster.wait_leader();
    let mut session = cluster.session(leader);
    let token = session.take("held", 1, 250);
    session.take("queued-for", 2, 250);
    let mut waiter = cluster.session(leader);
    waiter.acquire("queued-for", 3, 2, 5);
    let (there, here): (Vec<Host>, Vec<Host>) = {
        let others = all(&cluster).into_iter().filter(|&host| host != leader);
        let mut here = vec![leader];
        let (near, far): (Vec<_>, Vec<_>) = others.enumerate().partition(|(index, _)| *index < with);
        here.extend(near.into_iter().map(|(_, host)| host));
        (far.into_iter().map(|(_, host)| host).collect(), here)
    };
    running.remarking(&format!("{here:?} cut off from {there:?}"), || network.cut(&Cut::between(&here, &there)));
    session.acquire("free", 4, 0, 5);
    session.acquire("held", 5, 0, 5);
    session.acquire("held", 6, 1, 5);
    session.release("held", token);
    session.release("held", token + 1_000_000);
    let other = cluster.wait_leader_but(leader);
    let mut heir = cluster.session(other);
    heir.take("free", 7, 30);
    running.wait_granted(50, PATIENCE);
    std::thread::sleep(Duration::from_secs(2));
    running.remarking("healed", || network.heal());
    let said = [heard(&mut session, Duration::from_secs(3)), heard(&mut waiter, Duration::from_secs(1))].concat();
    assert!(!said.iter().any(is_definite), "the old leader said {said:?}");
    // Of what it had put into its log and nobody else has, nothing at all can be said.
    assert!(!said.iter().any(|reply| matches!(reply, Reply::Busy { owner: 4, .. })), "{said:?}");
    assert!(session.closed().is_some(), "nothing was said, and the connection is open: {said:?}");
    let waited = |reply: &Reply| {
        matches!(reply, Reply::TimedOut { owner: 3, .. } | Reply::Busy { owner: 3, .. })
    };
    assert_eq!(said.iter().filter(|reply| waited(reply)).count(), 1, "who waited was told {said:?}");
    wait_until("that it follows", PATIENCE, || {
        cluster.status(leader).is_some_and(|status| status.role == "follower")
    });
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    judge(&running.finish());
    same_state(&cluster);
}

/// Nobody asks for anything any more: all nodes come to the same state.
pub(crate) fn same_state(cluster: &Cluster<'_>) {
    cluster.wait("the same state everywhere", |statuses| {
        let states = |status: &ticketing_chaos::Status| (status.applied, status.state_hash.clone());
        let states: Vec<_> = statuses.iter().flatten().map(states).collect();
        states.len() == statuses.len() && states.windows(2).all(|pair| pair[0] == pair[1])
    });
}

#[test]
fn e49_e57_the_leader_is_alone() {
    isolate_the_leader(3, 0);
}

#[test]
fn e49_e57_the_leader_has_one_of_four_others() {
    isolate_the_leader(5, 1);
}

/// Others lead within a few elections, whichever way the leader is cut off.
fn one_way(to_others: bool) {
    let Some(network) = lab(3) else { return };
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&Load { leases: &[2, 5], ..load() });
    running.wait_granted(100, PATIENCE);
    let leader = cluster.wait_leader();
    let others = cluster.hosts().filter(|&host| host != leader);
    let way = |other| if to_others { Cut::one_way(leader, other) } else { Cut::one_way(other, leader) };
    let cut = others.map(way).fold(Cut::none(), |all, one| all | one);
    let mut session = cluster.session(leader);
    running.remarking(&format!("{cut:?}"), || network.cut(&cut));
    let start = Instant::now();
    session.acquire("free", 1, 0, 5);
    cluster.wait_leader_but(leader);
    let took = start.elapsed();
    running.wait_granted(50, PATIENCE);
    let said = heard(&mut session, Duration::from_secs(2));
    running.remarking("healed", || network.heal());
    assert!(!said.iter().any(is_definite), "the old leader said {said:?}");
    running.wait_granted(50, PATIENCE);
    cluster.wait_whole();
    judge(&running.finish());
    same_state(&cluster);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn e50_a_leader_that_nobody_hears() {
    one_way(true);
}

#[test]
fn e50_a_leader_that_hears_nobody() {
    one_way(false);
}

/// One follower does not hear the leader and is heard by all: it unseats nobody.
#[test]
fn e50_a_follower_that_does_not_hear_the_leader() {
    let Some(network) = lab(3) else { return };
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    running.wait_granted(100, PATIENCE);
    let leader = cluster.wait_leader();
    let term = cluster.status(leader).unwrap().term;
    let deaf = cluster.hosts().find(|&host| host != leader).unwrap();
    running.remarking("a follower is deaf", || network.cut(&Cut::one_way(leader, deaf)));
    std::thread::sleep(Duration::from_secs(4));
    running.wait_granted(100, PATIENCE);
    running.remarking("healed", || network.heal());
    cluster.wait_whole();
    running.wait_granted(100, PATIENCE);
    let status = cluster.status(leader).unwrap();
    assert_eq!((status.role.as_str(), status.term), ("leader", term), "a healthy leader was unseated");
    judge(&running.finish());
    same_state(&cluster);
}

/// Of five, the leader hears only the bridge, and so do two others, whom nobody else
/// hears; the fifth is gone. Only without that leader is there a majority.
#[test]
fn e51_a_leader_behind_a_bridge() {
    let Some(network) = lab(5) else { return };
    let mut cluster = Cluster::builder().nodes(5).start(&network);
    let running = cluster.load(&load());
    running.wait_granted(50, PATIENCE);
    let leader = cluster.wait_leader();
    let others: Vec<Host> = cluster.hosts().filter(|&host| host != leader).collect();
    let [gone, bridge, one, two] = others[..] else { panic!("four others") };
    cluster.node(gone).kill();
    running.wait_granted(50, PATIENCE);
    running.remarking("a bridge", || network.cut(&Cut::bridge(&[leader], bridge, &[one, two])));
    let start = Instant::now();
    cluster.wait_leader_but(leader);
    let took = start.elapsed();
    running.wait_granted(50, PATIENCE);
    running.remarking("healed", || network.heal());
    cluster.node(gone).start();
    note(&running, "all are there");
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    judge(&running.finish());
    same_state(&cluster);
    assert!(took < Duration::from_secs(10), "{took:?}");
}
