//! A leader that dies, sleeps, or is told to go.

use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Load, Network};
use ticketing_test_support::{Reply, Signal, wait_until, wire};

use crate::client::Client;
use crate::{
    PATIENCE, Times, heard, is_definite, judge, judge_all, load, long, rounds, standstill, undisturbed,
};

fn kill_leaders(nodes: usize, times: usize) -> Times {
    let network = Network::new(nodes + 1);
    let mut cluster = Cluster::builder().nodes(nodes).start(&network);
    let running = cluster.load(&load());
    let mut standstills = Times::default();
    for round in 0..times {
        cluster.wait_whole();
        running.wait_granted(50, PATIENCE);
        let leader = cluster.wait_leader();
        // Not always at the same moment of a heartbeat.
        std::thread::sleep(Duration::from_millis(round as u64 * 37 % 100));
        let node = cluster.node(leader);
        standstills
            .add(standstill(&running, &format!("the leader is killed, on {leader:?}"), || node.kill()));
        node.start();
    }
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    let summary = judge_all(&running.finish());
    assert!(summary.indeterminate > 0, "nobody was in the middle of anything: {summary:?}");
    standstills.tell(&format!("fail-over of {nodes} nodes"));
    standstills
}

#[test]
fn e46_leaders_are_killed_under_load() {
    let times = kill_leaders(3, rounds(12));
    // Far above what it takes, and far below what a second election would add to it.
    assert!(times.percentile(50) < Duration::from_secs(2), "{times:?}");
}

#[test]
fn e46_leaders_of_five_are_killed_under_load() {
    let times = kill_leaders(5, rounds(4));
    assert!(times.percentile(50) < Duration::from_secs(3), "{times:?}");
}

/// Nobody notices: no other leader, no answer that is lost.
fn kill_followers(nodes: usize) -> Option<()> {
    let network = Network::new(nodes + 1);
    let mut cluster = Cluster::builder().nodes(nodes).start(&network);
    let running = cluster.load(&load());
    let leader = cluster.wait_leader();
    let term = cluster.status(leader).unwrap().term;
    for round in 0..rounds(4) {
        cluster.wait_whole();
        running.wait_granted(100, PATIENCE);
        let follower = cluster.hosts().filter(|&host| host != leader).nth(round % (nodes - 1)).unwrap();
        running
            .remarking(&format!("a follower is killed, on {follower:?}"), || cluster.node(follower).kill());
        running.wait_granted(100, PATIENCE);
        cluster.node(follower).start();
    }
    cluster.wait_whole();
    let summary = judge_all(&running.finish());
    if cluster.status(leader).unwrap().term != term {
        return None;
    }
    assert_eq!((summary.indeterminate, summary.busy, summary.not_sent), (0, 0, 0), "{summary:?}");
    Some(())
}

#[test]
fn e47_followers_are_killed_under_load() {
    undisturbed(|| kill_followers(3));
}

#[test]
fn e47_followers_of_five_are_killed_under_load() {
    undisturbed(|| kill_followers(5));
}

/// Leases end and waits run out while the leader sleeps, and it is asked things that it
/// can only answer when it wakes up: by then it is no leader.
#[test]
fn e48_e43_a_leader_sleeps() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&Load { leases: &[1, 2, 5], oversleep: 3, forget: 1, keys: 40, ..load() });
    let longest = if long() { 30_000 } else { 8_000 };
    for millis in [200, 700, 3_000, longest] {
        running.wait_granted(50, PATIENCE);
        let key = format!("of-the-sleeper-{millis}");
        let token = Client::new(&cluster).take(&key, 0, 250);
        let leader = cluster.wait_leader();
        let mut held = cluster.session(leader);
        held.acquire(&key, millis, 60, 5);
        let mut session = cluster.session(leader);
        cluster.server(leader).signal(Signal::STOP);
        let asleep = Instant::now();
        if millis < 1_000 {
            running.remarking("the leader naps", || std::thread::sleep(Duration::from_millis(millis)));
            cluster.server(leader).signal(Signal::CONT);
            continue;
        }
        running.remarking("the leader sleeps", || cluster.wait_leader_but(leader));
        session.acquire("free", 1, 0, 5);
        session.acquire("free-too", 2, 5, 5);
        session.release(&key, token);
        std::thread::sleep(Duration::from_millis(millis).saturating_sub(asleep.elapsed()));
        running.remarking("it wakes up", || cluster.server(leader).signal(Signal::CONT));
        for session in [&mut session, &mut held] {
            let said = heard(session, Duration::from_secs(3));
            assert!(!said.iter().any(is_definite), "it said {said:?}");
        }
        wait_until("that it follows", PATIENCE, || {
            cluster.status(leader).is_some_and(|status| status.role == "follower")
        });
        // What it was asked to release is held still, and can be released where that counts.
        Client::new(&cluster).release(&key, token);
    }
    running.wait_granted(100, PATIENCE);
    judge(&running.finish());
}

/// Waiters end with their leader. What of them was in the log is one hold for each key
/// at most, and gone with its lease.
#[test]
fn e55_a_thousand_waiters_at_a_fail_over() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let key = |number: u64| format!("key-{}", number % 10);
    let mut client = Client::new(&cluster);
    let tokens: Vec<u64> = (0..10).map(|number| client.take(&key(number), 0, 250)).collect();
    let leader = cluster.wait_leader();
    let mut holder = cluster.session(leader);
    let mut waiting: Vec<_> = (0..10).map(|_| cluster.session(leader)).collect();
    for (number, session) in (0..1000).zip((0..10).cycle()) {
        waiting[session].acquire(key(number / 10), 1000 + number, 250, 3);
    }
    wait_until("a thousand waiters", PATIENCE, || {
        let (_, page) = network.place(leader).within(|| cluster.server(leader).admin_get("/status"));
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        page["waiters"]["waiting"] == 1000
    });
    // Half of the locks change hands as the leader dies.
    for (number, token) in (0..5).zip(&tokens) {
        holder.release(key(number), *token);
    }
    cluster.node(leader).kill();
    let died = Instant::now();
    for session in &mut waiting {
        let said = heard(session, Duration::from_secs(5));
        assert!(session.closed().is_some(), "it is open still");
        assert!(said.iter().all(is_definite), "{said:?}");
    }
    let mut client = Client::new(&cluster);
    // What the dead leader was told may have happened or not.
    for (number, token) in (0..10).zip(&tokens) {
        let (reply, _) = client.ask(&wire::release(key(number), *token));
        let may_be = number < 5 && reply == Reply::not_held(*token, key(number));
        assert!(may_be || reply == Reply::released(*token, key(number)), "{reply:?}");
    }
    for number in 0..10 {
        client.take(&key(number), 60, 3);
    }
    // One lease, and not one for each who waited.
    assert!(died.elapsed() < Duration::from_secs(3 + 12), "{:?}", died.elapsed());
}

/// Leaders that are missed again and again: nothing is decided twice, and it ends when
/// the disturbance does.
#[test]
fn e59_election_storms() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&Load { leases: &[2, 5], ..load() });
    let storm = Duration::from_secs(if long() { 30 } else { 12 });
    let first = cluster.status(cluster.wait_leader()).unwrap().term;
    let start = Instant::now();
    while start.elapsed() < storm {
        if let Some(leader) = cluster.leader() {
            running.remarking("the leader sleeps", || {
                cluster.server(leader).signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(700));
                cluster.server(leader).signal(Signal::CONT);
            });
        }
    }
    let calm = Instant::now();
    running.wait_granted(20, PATIENCE);
    let calmed = calm.elapsed();
    let last = cluster.status(cluster.wait_leader()).unwrap().term;
    assert!(last > first + 3, "only terms {first} to {last}: that was no storm");
    running.wait_granted(100, PATIENCE);
    judge_all(&running.finish());
    assert!(calmed < Duration::from_secs(6), "{calmed:?}");
}
