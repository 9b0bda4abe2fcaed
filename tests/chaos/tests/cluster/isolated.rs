//! A leader that a majority cannot hear: what it says meanwhile, and what it piles up.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Cut, Host, Load};
use ticketing_history::{Rules, SECOND};
use ticketing_test_support::{Raw, Reply, wait_until, wire};

use crate::client::Client;
use crate::partitions::same_state;
use crate::{PATIENCE, heard, judge, judge_all, judge_by, lab, load, note, rules, time};

fn free(number: u64) -> String {
    format!("free-{number}")
}

/// Asks for one free key after the other, from before the cut until well after it: some
/// of these are in the log of the majority, some in that of the leader alone, some in
/// none. Returns how many were asked for.
fn ask_throughout(session: &Raw, cut: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    let mut writer = session.tcp().try_clone().unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                // It may be closed already.
                let _ = writer.write_all(&wire::acquire(free(asked), asked, 0, 250));
                asked += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            asked
        });
        std::thread::sleep(Duration::from_millis(300));
        cut();
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        asked.join().unwrap()
    })
}

/// The leader is alone, or with one of four others: it says nothing definite, and the
/// majority goes on without it.
fn isolate_the_leader(nodes: usize, with: usize) {
    let Some(network) = lab(nodes) else { return };
    let cluster = Cluster::builder().nodes(nodes).start(&network);
    let running = cluster.load(&Load { leases: &[1, 2, 5], oversleep: 2, keys: 20, ..load() });
    running.wait_granted(100, PATIENCE);
    let token = Client::new(&cluster).take("held", 0, 250);
    let leader = cluster.wait_leader();
    let mut session = cluster.session(leader);
    let mut waiter = cluster.session(leader);
    waiter.acquire("held", 3, 2, 5);
    let others: Vec<Host> = cluster.hosts().filter(|&host| host != leader).collect();
    let (near, far) = others.split_at(with);
    let minority = [&[leader], near].concat();
    let cut = Cut::between(&minority, far);
    let ways = minority.iter().flat_map(|&from| far.iter().map(move |&to| Cut::one_way(from, to)));
    let mute = ways.fold(Cut::none(), |all, one| all | one);
    let asked = ask_throughout(&session, || {
        running.remarking(&format!("{cut:?}"), || {
            // What is sent from here on reaches no majority, and the leader, which hears of
            // one still, takes it into its log.
            network.cut(&mute);
            std::thread::sleep(Duration::from_millis(50));
            network.cut(&cut);
        });
    });
    let early = heard(&mut session, Duration::from_millis(1));
    let _ = session.try_send(wire::acquire("held", u64::MAX, 1, 5));
    let _ = session.try_send(wire::release("held", token));
    let _ = session.try_send(wire::release("held", token + 1_000_000));
    let other = cluster.wait_leader_but(leader);
    note(&running, &format!("{other:?} leads"));
    running.wait_granted(50, PATIENCE);
    std::thread::sleep(Duration::from_secs(2));
    running.remarking("healed", || network.heal());
    let late = heard(&mut session, Duration::from_secs(4));
    // What it was told after the cut, nobody else can know.
    let of_release = |reply: &&Reply| matches!(reply, Reply::Released { .. } | Reply::NotHeld { .. });
    assert_eq!(late.iter().find(of_release), None);
    let waited = heard(&mut waiter, Duration::from_secs(1));
    let is_told =
        |reply: &Reply| matches!(reply, Reply::TimedOut { owner: 3, .. } | Reply::Busy { owner: 3, .. });
    assert_eq!(waited.iter().filter(|reply| is_told(reply)).count(), 1, "who waited was told {waited:?}");
    // What was granted is held, however late the word came: the majority had it. What was
    // refused was never taken. Of all else nothing can be said, which is what the end of
    // the connection means.
    let mut client = Client::new(&cluster);
    let (mut granted, mut untold) = (0, 0);
    for number in 0..asked {
        let mut said = early.iter().chain(&late).filter(|reply| match reply {
            Reply::Granted { owner, .. } | Reply::Busy { owner, .. } | Reply::TimedOut { owner, .. } => {
                *owner == number
            }
            _ => false,
        });
        match said.next() {
            Some(Reply::Granted { .. }) => {
                granted += 1;
                assert!(client.is_held(&free(number)), "{number} was granted, and lost");
            }
            Some(Reply::Busy { .. }) => {
                assert!(!client.is_held(&free(number)), "{number} was refused, and taken");
            }
            Some(other) => panic!("{number} was told {other:?}"),
            None => untold += 1,
        }
        assert_eq!(said.next(), None, "{number} was told twice");
    }
    assert!(granted > 0 && untold > 0, "of {asked} {granted} were granted and {untold} told nothing: no cut");
    assert!(session.closed().is_some(), "{untold} were told nothing, on an open connection");
    wait_until("that it follows", PATIENCE, || {
        cluster.status(leader).is_some_and(|status| status.role == "follower")
    });
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    judge(&running.finish());
    same_state(&cluster);
}

#[test]
fn e49_e57_the_leader_is_alone() {
    isolate_the_leader(3, 0);
}

#[test]
fn e49_e57_the_leader_has_one_of_four_others() {
    isolate_the_leader(5, 1);
}

/// What a node may use more than it did, after a time in which it could get rid of
/// nothing.
const ROOM: u64 = 64 << 20;

/// Cut off together with all its clients, who go on asking: what cannot be committed is
/// not piled up.
#[test]
fn e101_a_leader_alone_with_its_clients() {
    let Some(network) = lab(3) else { return };
    let cluster = Cluster::builder().arg("--log-memory").arg("65536").start(&network);
    let running = cluster.load(&Load { brokers: 8, workers: 8, pause: Duration::ZERO, ..load() });
    running.wait_granted(2_000, 2 * PATIENCE);
    let leader = cluster.wait_leader();
    let before = cluster.server(leader).usage();
    let others: Vec<Host> = cluster.hosts().filter(|&host| host != leader).collect();
    let cut = Cut::between(&[leader, cluster.client()], &others);
    running.remarking("the leader is alone with its clients", || network.cut(&cut));
    let start = Instant::now();
    let mut most = 0;
    while start.elapsed() < time(Duration::from_secs(10)) {
        most = most.max(cluster.status(leader).unwrap().log_bytes);
        std::thread::sleep(Duration::from_millis(200));
    }
    let after = cluster.server(leader).usage();
    running.remarking("healed", || network.heal());
    assert!(most < 4 << 20, "{most} bytes of log that nobody has agreed to");
    assert!(after.rss < before.rss + ROOM, "{} bytes of memory, {} before", after.rss, before.rss);
    assert!(after.descriptors < before.descriptors + 100, "{after:?}, {before:?} before");
    cluster.wait_whole();
    running.wait_granted(500, PATIENCE);
    // The clients had nobody else to turn to.
    let late = Some(25 * SECOND + u64::try_from(start.elapsed().as_nanos()).unwrap());
    judge_by(&running.finish(), &Rules { dense: true, late_answer: late, late_expiry: late, ..rules() });
    same_state(&cluster);
}

/// A follower is down for long: the others do not keep the whole log for it, and it
/// comes back nevertheless.
#[test]
fn e101_a_follower_that_is_down_for_long() {
    let Some(network) = lab(3) else { return };
    let mut cluster = Cluster::builder().durable().arg("--log-memory").arg("65536").start(&network);
    let running = cluster.load(&Load { brokers: 8, workers: 8, pause: Duration::ZERO, ..load() });
    running.wait_granted(500, 2 * PATIENCE);
    let leader = cluster.wait_leader();
    let down = cluster.hosts().find(|&host| host != leader).unwrap();
    let before = cluster.server(leader).usage();
    let applied = cluster.status(leader).unwrap().applied;
    running.remarking("a follower is down", || cluster.node(down).kill());
    let start = Instant::now();
    let mut most = 0;
    while start.elapsed() < time(Duration::from_secs(10)) {
        most = most.max(cluster.status(leader).unwrap().log_bytes);
        std::thread::sleep(Duration::from_millis(200));
    }
    running.wait_granted(2_000, 2 * PATIENCE);
    let after = cluster.server(leader).usage();
    let written = cluster.status(cluster.wait_leader()).unwrap().applied - applied;
    assert!(written > 100, "only {written} entries: that was no load");
    assert!(most < 4 << 20, "{most} bytes of log for a node that is down");
    assert!(after.rss < before.rss + ROOM, "{} bytes of memory, {} before", after.rss, before.rss);
    cluster.node(down).start();
    cluster.wait_whole();
    running.wait_granted(500, PATIENCE);
    judge_all(&running.finish());
    same_state(&cluster);
}
