//! Very many keys, and very many who wait for one.

use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Host, Network};
use ticketing_test_support::{Raw, Reply, wait_until, wire};

use crate::client::Client;
use crate::partitions::same_state;
use crate::{PATIENCE, Times, heard, is_definite, long, undisturbed};

/// Requests that are under way at a time.
const PIECE: usize = 10_000;

/// The next answer; `None`: the leader has given way.
fn answer(session: &mut Raw) -> Option<Reply> {
    let reply = session.read_within(PATIENCE);
    assert!(reply.is_some() || session.closed().is_some(), "no answer");
    reply.filter(|reply| !matches!(reply, Reply::Busy { .. } | Reply::Moved(_) | Reply::Leader(_)))
}

/// Sends requests in pieces; every one has an answer, in their order. `None`: the leader
/// has given way.
fn pipelined(session: &mut Raw, requests: &[Vec<u8>], mut hear: impl FnMut(Reply)) -> Option<()> {
    for piece in requests.chunks(PIECE) {
        session.try_send(piece.concat()).ok()?;
        for _ in piece {
            hear(answer(session)?);
        }
    }
    Some(())
}

/// Takes so many keys; returns their releases.
fn take(session: &mut Raw, count: u64) -> Option<Vec<Vec<u8>>> {
    let acquire = |number| wire::acquire(format!("one-of-many-{number}"), number, 0, 250);
    let mut releases = Vec::new();
    pipelined(session, &(0..count).map(acquire).collect::<Vec<_>>(), |reply| match reply {
        Reply::Granted { token, key, .. } => releases.push(wire::release(key, token)),
        other => panic!("{other:?}"),
    })?;
    Some(releases)
}

fn give_back(session: &mut Raw, releases: &[Vec<u8>]) -> Option<()> {
    pipelined(session, releases, |reply| assert!(matches!(reply, Reply::Released { .. }), "{reply:?}"))
}

/// Resident memory of each node.
fn memory(cluster: &Cluster<'_>) -> Vec<u64> {
    cluster.hosts().map(|host| cluster.server(host).usage().rss).collect()
}

/// What the log of a node keeps here.
const LOG_MEMORY: u64 = 1 << 20;

/// Very many keys are held: a node that begins anew gets all of them. Then they are
/// released: the memory comes back.
#[test]
fn e99_very_many_keys() {
    undisturbed(|| very_many_keys(if long() { 1_000_000 } else { 100_000 }));
}

#[allow(clippy::print_stderr)] // Figures for whoever asked for them.
fn very_many_keys(count: u64) -> Option<()> {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().arg("--log-memory").arg(&LOG_MEMORY.to_string()).start(&network);
    cluster.wait_whole();
    let leader = cluster.wait_leader();
    let mut session = cluster.session(leader);
    // What is made once, and kept for as long as there is work, is there by then.
    let releases = take(&mut session, 2 * PIECE as u64)?;
    give_back(&mut session, &releases)?;
    let before = memory(&cluster);
    let start = Instant::now();
    let releases = take(&mut session, count)?;
    eprintln!("{count} keys taken within {:?}", start.elapsed());
    let most = memory(&cluster);
    let place = cluster.hosts().find(|&host| host != leader).unwrap();
    let start = Instant::now();
    cluster.node(place).restart();
    cluster.wait_whole();
    let took = start.elapsed();
    eprintln!("replaced within {took:?}");
    assert!(took < Duration::from_secs(15), "{took:?} to replace a node");
    assert_eq!(cluster.status(place).unwrap().held, count);
    give_back(&mut session, &releases)?;
    // Of what they took no more than a fifth stays behind; an allocator may take its time.
    let mut now = most.clone();
    let is_back = |now: &[u64]| {
        let kept = now.iter().zip(&before).map(|(now, before)| now.saturating_sub(*before));
        kept.zip(most.iter().zip(&before))
            .all(|(kept, (most, before))| kept < most.saturating_sub(*before) / 5 + 8 * LOG_MEMORY)
    };
    let back = Instant::now();
    while !is_back(&now) {
        assert!(back.elapsed() < 2 * PATIENCE, "memory {now:?}, {before:?} before, {most:?} with all keys");
        std::thread::sleep(Duration::from_millis(50));
        now = memory(&cluster);
    }
    eprintln!("memory {now:?}, {before:?} before, {most:?} with all keys");
    same_state(&cluster);
    Some(())
}

/// Waiters of one key in one queue.
const CROWD: u64 = 100_000;

/// Sessions with the leader, whose acquires of "k" wait there; `None`: it has given way.
fn crowd(cluster: &Cluster<'_>, network: &Network, leader: Host) -> Option<Vec<(Raw, std::ops::Range<u64>)>> {
    let share = 12_500;
    let mut crowd: Vec<(Raw, std::ops::Range<u64>)> = (0..CROWD)
        .step_by(share)
        .map(|first| (cluster.session(leader), first..CROWD.min(first + share as u64)))
        .collect();
    for (session, owners) in &mut crowd {
        let acquires = owners.clone().flat_map(|owner| wire::acquire("k", owner, 250, 250));
        session.try_send(acquires.collect::<Vec<_>>()).ok()?;
        // So that the queue is in the order of the owners.
        let mut leads = true;
        wait_until("waiters", PATIENCE, || {
            leads = cluster.status(leader).is_some_and(|status| status.serving);
            !leads || waiting(cluster, network, leader) == owners.end
        });
        if !leads {
            return None;
        }
    }
    Some(crowd)
}

fn waiting(cluster: &Cluster<'_>, network: &Network, host: Host) -> u64 {
    let (_, page) = network.place(host).within(|| cluster.server(host).admin_get("/status"));
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    page["waiters"]["waiting"].as_u64().unwrap()
}

/// A hundred thousand wait for one key when their leader dies: the end of their
/// connections tells all of them, and nothing of them is left. They queue up at the next
/// leader, and the lock goes through all of their hands.
#[test]
fn e100_a_hundred_thousand_waiters() {
    undisturbed(waiters_of_a_leader_that_dies);
}

#[allow(clippy::print_stderr)] // Figures for whoever asked for them.
fn waiters_of_a_leader_that_dies() -> Option<()> {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let token = Client::new(&cluster).take("k", 0, 250);
    let leader = cluster.wait_leader();
    let mut waiters = crowd(&cluster, &network, leader)?;
    let died = Instant::now();
    cluster.node(leader).kill();
    let next = cluster.wait_leader();
    let _ = Client::new(&cluster).take("another", 0, 5);
    let mut times = Times::default();
    times.add(died.elapsed());
    times.tell("fail-over with a hundred thousand waiters");
    for (session, _) in &mut waiters {
        let said = heard(session, Duration::from_secs(5));
        assert!(session.closed().is_some() && !said.iter().any(is_definite), "{said:?}");
    }
    assert!(Client::new(&cluster).is_held("k") && waiting(&cluster, &network, next) == 0);
    drop(waiters);
    cluster.node(leader).start();
    cluster.wait_whole();

    let leader = cluster.wait_leader();
    let mut waiters = crowd(&cluster, &network, leader)?;
    let mut holder = cluster.session(leader);
    let start = Instant::now();
    // The tokens of one key that nobody else asks for follow each other, so that all
    // releases can be written down beforehand; but others were granted since.
    holder.try_send(wire::release("k", token)).ok()?;
    assert_eq!(answer(&mut holder)?, Reply::released(token, "k"));
    let first = match answer(&mut waiters[0].0)? {
        Reply::Granted { token, owner: 0, .. } => token,
        other => panic!("{other:?} instead of the first hand-off"),
    };
    let releases: Vec<_> = (first..first + CROWD).map(|token| wire::release("k", token)).collect();
    std::thread::scope(|scope| {
        let mut all = vec![scope.spawn(|| give_back(&mut holder, &releases))];
        for (session, owners) in &mut waiters {
            all.push(scope.spawn(|| {
                for owner in owners.skip_while(|owner| *owner == 0) {
                    assert_eq!(answer(session)?, Reply::granted(first + owner, owner, "k"));
                }
                Some(())
            }));
        }
        all.into_iter().map(|thread| thread.join().unwrap()).collect::<Option<Vec<()>>>().map(drop)
    })?;
    let took = start.elapsed();
    eprintln!("{CROWD} hand-offs within {took:?}");
    assert!(took < 2 * PATIENCE, "{took:?} for {CROWD} hand-offs");
    assert!(!Client::new(&cluster).is_held("k"));
    same_state(&cluster);
    Some(())
}
