//! A leader that is told to stop hands over.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Host, Network, now};
use ticketing_history::{History, Nanos, Op, Outcome, Returned, SECOND};
use ticketing_test_support::{Raw, Reply, wait_until, wire};

use crate::client::Client;
use crate::{PATIENCE, Times, heard, judge, load, rounds};

/// Waiters are told at once, what is held
/// stays held, and others grant again in no time.
#[test]
fn e46_leaders_are_told_to_stop() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    let mut told = Vec::new();
    for round in 0..rounds(4) {
        let key = format!("held-{round}");
        cluster.wait_whole();
        running.wait_granted(50, PATIENCE);
        let token = Client::new(&cluster).take(&key, 0, 250);
        let leader = cluster.wait_leader();
        let mut waiter = cluster.session(leader);
        waiter.acquire(&key, 2, 250, 5);
        told.push(now());
        running
            .remarking(&format!("the leader is told to stop, on {leader:?}"), || cluster.node(leader).stop());
        let said = heard(&mut waiter, Duration::from_secs(1));
        assert!(said.contains(&Reply::busy(2, &key)), "the waiter was told {said:?}");
        cluster.node(leader).start();
        assert!(Client::new(&cluster).is_held(&key), "it was lost");
        Client::new(&cluster).release(&key, token);
    }
    running.wait_granted(100, PATIENCE);
    let history = running.finish();
    judge(&history);
    let mut pauses = Times::default();
    told.into_iter().for_each(|moment| pauses.add(longest_pause(&history, moment)));
    pauses.tell("hand-over");
    assert!(pauses.percentile(50) < Duration::from_millis(600), "{pauses:?}");
}

/// The longest time without a grant in the five seconds after a moment.
fn longest_pause(history: &History, since: Nanos) -> Duration {
    let granted = |op: &Op| match op.returned {
        Some(Returned { at, outcome: Outcome::Granted { .. } }) => Some(at),
        _ => None,
    };
    let mut times: Vec<Nanos> = history.ops.iter().filter_map(granted).collect();
    times.retain(|at| (since..since + 5 * SECOND).contains(at));
    times.push(since);
    times.sort_unstable();
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(pauses.max().expect("grants after the hand-over"))
}

/// The first and the last grant that a node gave.
type Grants = Mutex<Option<(Instant, Instant)>>;

/// Asks a node for locks without a pause, and notes when it gave them.
fn ask(addr: SocketAddr, key: &str, stop: &AtomicBool, grants: &Grants) {
    let mut session = None;
    while !stop.load(Ordering::Relaxed) {
        session = session.or_else(|| Raw::try_open(addr)).filter(|raw| raw.closed().is_none());
        if let Some(raw) = &mut session {
            let asked = raw.try_send(wire::acquire(key, rand::random(), 0, 1)).is_ok();
            let answer = raw.read_within(Duration::from_millis(200)).filter(|_| asked);
            if let Some(Reply::Granted { token, .. }) = answer {
                let at = Instant::now();
                grants.lock().unwrap().get_or_insert((at, at)).1 = at;
                let _ = raw.try_send(wire::release(key, token));
                let _ = raw.read_within(Duration::from_secs(1));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// From the last word of the old leader to the first one of the next.
#[test]
fn e46_a_hand_over_takes_no_election() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let mut took = Times::default();
    for _ in 0..rounds(6) {
        cluster.wait_whole();
        let leader = cluster.wait_leader();
        let nodes: Vec<(Host, SocketAddr)> =
            cluster.hosts().map(|host| (host, cluster.address(host))).collect();
        let grants: Vec<Grants> = nodes.iter().map(|_| Grants::default()).collect();
        let last_of_leader = || grants[leader.0].lock().unwrap().map(|(_, last)| last);
        let first_of_others = || {
            let others = grants.iter().enumerate().filter(|(number, _)| *number != leader.0);
            others.filter_map(|(_, grants)| grants.lock().unwrap().map(|(first, _)| first)).min()
        };
        let stop = AtomicBool::new(false);
        network.place(cluster.client()).within(|| {
            std::thread::scope(|scope| {
                for ((host, addr), grants) in nodes.iter().zip(&grants) {
                    scope.spawn(|| ask(*addr, &format!("of-{}", host.0), &stop, grants));
                }
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    wait_until("a grant", PATIENCE, || last_of_leader().is_some());
                    cluster.node(leader).stop();
                    wait_until("a grant of the next leader", PATIENCE, || first_of_others().is_some());
                }));
                stop.store(true, Ordering::Relaxed);
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        });
        took.add(first_of_others().unwrap().saturating_duration_since(last_of_leader().unwrap()));
        cluster.node(leader).start();
    }
    took.tell("hand-over, from answer to answer");
    assert!(took.percentile(50) < Duration::from_secs(2), "{took:?}");
}
