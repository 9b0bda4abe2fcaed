//! Nodes that do not hear each other. Clients hear all of them.

use std::time::{Duration, Instant};

use rand::seq::SliceRandom as _;
use ticketing_chaos::{Cluster, Cut, Host, Load};

use crate::{PATIENCE, heard, is_definite, judge, judge_all, lab, load, long, note, rounds, undisturbed};

/// Nobody asks for anything any more: all nodes come to the same state.
#[track_caller]
pub(crate) fn same_state(cluster: &Cluster<'_>) {
    let start = Instant::now();
    loop {
        let statuses = cluster.hosts().map(|host| cluster.status(host)).collect::<Option<Vec<_>>>();
        let mut statuses = statuses.iter().flatten();
        let first = statuses.next().map(|status| (status.applied, &status.state_hash));
        if first.is_some() && statuses.all(|status| Some((status.applied, &status.state_hash)) == first) {
            return;
        }
        let states: Vec<_> = cluster.hosts().map(|host| cluster.status(host)).collect();
        assert!(start.elapsed() < PATIENCE, "different states: {states:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
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
    undisturbed(a_deaf_follower);
}

fn a_deaf_follower() -> Option<()> {
    let Some(network) = lab(3) else { return Some(()) };
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    running.wait_granted(100, PATIENCE);
    let leader = cluster.wait_leader();
    let deaf = cluster.hosts().find(|&host| host != leader).unwrap();
    running.remarking("a follower is deaf", || network.cut(&Cut::one_way(leader, deaf)));
    let term = cluster.status(leader).unwrap().term;
    std::thread::sleep(Duration::from_secs(4));
    let status = cluster.status(leader).unwrap();
    running.wait_granted(100, PATIENCE);
    running.remarking("healed", || network.heal());
    cluster.wait_whole();
    running.wait_granted(100, PATIENCE);
    judge_all(&running.finish());
    same_state(&cluster);
    (status.role == "leader" && status.term == term).then_some(())
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
    judge_all(&running.finish());
    same_state(&cluster);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Packets are lost, and a line is slow: less is done, and nothing wrong.
#[test]
fn e53_packets_are_lost_and_a_line_is_slow() {
    let Some(network) = lab(3) else { return };
    let lab = network.lab().unwrap();
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&Load { leases: &[5, 30], ..load() });
    for percent in [5, 15, 30] {
        running.remarking(&format!("{percent} % are lost"), || {
            lab.apply(&Cut::none(), percent);
            std::thread::sleep(Duration::from_secs(4));
        });
        lab.apply(&Cut::none(), 0);
        running.wait_granted(30, PATIENCE);
    }
    let leader = cluster.wait_leader();
    for host in [leader, cluster.hosts().find(|&host| host != leader).unwrap()] {
        running.remarking(&format!("a slow line to {host:?}"), || {
            lab.rate(host, Some(64));
            std::thread::sleep(Duration::from_secs(5));
            lab.rate(host, None);
        });
        running.wait_granted(30, PATIENCE);
    }
    cluster.wait_whole();
    judge_all(&running.finish());
    same_state(&cluster);
}

/// Every few seconds other nodes are apart: a minority, a majority, one way, a chain.
#[test]
fn e54_rolling_partitions() {
    let Some(network) = lab(5) else { return };
    let cluster = Cluster::builder().nodes(5).start(&network);
    let load = Load { leases: &[2, 5], oversleep: 1, forget: 1, keys: 20, ..load() };
    let running = cluster.load(&load);
    let mut hosts: Vec<Host> = cluster.hosts().collect();
    let apart = Duration::from_secs(if long() { 10 } else { 3 });
    for step in 0..rounds(10) {
        hosts.shuffle(&mut rand::rng());
        let cut = match step % 5 {
            0 => Cut::between(&hosts[..1], &hosts[1..]),
            1 => Cut::between(&hosts[..2], &hosts[2..]),
            2 => Cut::chain(&hosts),
            3 => Cut::bridge(&hosts[..2], hosts[2], &hosts[3..]),
            _ => {
                Cut::one_way(hosts[0], hosts[1])
                    | Cut::one_way(hosts[1], hosts[2])
                    | Cut::one_way(hosts[2], hosts[0])
            }
        };
        running.remarking(&format!("{cut:?}"), || {
            network.cut(&cut);
            std::thread::sleep(apart);
        });
        if step % 2 == 1 {
            running.remarking("healed", || network.heal());
            running.wait_granted(20, PATIENCE);
        }
    }
    network.heal();
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    let summary = judge_all(&running.finish());
    let disturbed = summary.indeterminate + summary.unconfirmed + summary.busy;
    assert!(disturbed > 0, "nobody noticed anything: {summary:?}");
    same_state(&cluster);
}
