//! Places that are emptied, and filled again by another node.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use ticketing_chaos::{Cluster, Host, Load, Network, Status};
use ticketing_peer::{CallError, ClusterId, Config, Limits, Party, Peer, Refusal, Secret};
use ticketing_test_support::{Reply, Signal, wait_until};

use crate::partitions::same_state;
use crate::{PATIENCE, Times, expect_not_active, judge, judge_all, lab, load, long, rounds};

/// The ids that a bootstrap gives out are below this; all later ones are not.
const FIRST_LATER_ID: u64 = 1 << 32;

fn id(cluster: &Cluster<'_>, host: Host) -> u64 {
    cluster.status(host).and_then(|status| status.node).expect("a node id")
}

fn voters(status: &Status) -> BTreeSet<u64> {
    status.voters.iter().map(|voter| voter.node).collect()
}

/// Kills whoever fills a place, starts a blank process there, and sees it take the
/// place over under an id that nobody ever had.
fn replace_again_and_again(leaders: bool, times: usize) -> Times {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    let mut given: BTreeSet<u64> = cluster.hosts().map(|host| id(&cluster, host)).collect();
    assert_eq!(given, BTreeSet::from([1, 2, 3]));
    let mut took = Times::default();
    for round in 0..times {
        running.wait_granted(20, PATIENCE);
        let leader = cluster.wait_leader();
        let follower = cluster.hosts().filter(|&host| host != leader).nth(round % 2).unwrap();
        let place = if leaders { leader } else { follower };
        let old = id(&cluster, place);
        running.remarking(&format!("{place:?} begins anew"), || cluster.node(place).restart());
        let start = Instant::now();
        cluster.wait_whole();
        took.add(start.elapsed());
        let new = id(&cluster, place);
        let highest = *given.last().unwrap();
        assert!(new > highest && new >= FIRST_LATER_ID, "{new} after {given:?}");
        given.insert(new);
        assert!(!voters(&cluster.status(place).unwrap()).contains(&old));
    }
    running.wait_granted(50, PATIENCE);
    judge_all(&running.finish());
    same_state(&cluster);
    took.tell(if leaders { "the place of a leader" } else { "the place of a follower" });
    took
}

#[test]
fn e61_e63_e73_followers_are_replaced() {
    let took = replace_again_and_again(false, rounds(10));
    assert!(took.percentile(50) < Duration::from_secs(5), "{took:?}");
}

#[test]
fn e62_e63_e73_leaders_are_replaced() {
    let took = replace_again_and_again(true, rounds(6));
    assert!(took.percentile(50) < Duration::from_secs(8), "{took:?}");
}

/// Peers that mean the old node of a place get nothing out of the new one, and the old
/// node itself is told that it is none any more.
#[test]
fn e65_calls_to_a_node_that_is_gone() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let leader = cluster.wait_leader();
    let place = cluster.hosts().find(|&host| host != leader).unwrap();
    let (old, identity) = (id(&cluster, place), cluster.status(place).unwrap().identity.unwrap());
    cluster.node(place).restart();
    cluster.wait_whole();
    let new = id(&cluster, place);
    let identity = ClusterId(u128::from_str_radix(&identity, 16).unwrap().to_be_bytes());
    let party = |node| Party { cluster: identity, node };
    let secret = Secret::new(&std::fs::read(cluster.secret()).unwrap()).unwrap();
    let config = Config { secret, tls: None, limits: Limits::default() };
    let call = |to: Host, from: Party, meant: Party| {
        let addr = cluster.peer_address(to).to_string();
        network.place(cluster.client()).within(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
                // A kind of call that nobody knows: only who is let in hears that.
                Peer::new(addr, from, meant, config.clone()).call(255, "", deadline).await
            })
        })
    };
    let leaders_id = id(&cluster, leader);
    assert_eq!(
        call(place, party(leaders_id), party(old)),
        Err(CallError::Refused(Refusal::Node { meant: old, answering: new }))
    );
    assert_eq!(call(leader, party(old), party(leaders_id)), Err(CallError::Refused(Refusal::Retired)));
    let other = ClusterId([9; 16]);
    let foreign = call(leader, Party { cluster: other, node: 2 }, Party { cluster: other, node: leaders_id });
    assert!(matches!(foreign, Err(CallError::Refused(Refusal::Cluster { .. }))), "{foreign:?}");
    let met = call(place, party(leaders_id), party(new));
    assert!(matches!(met, Err(CallError::Failed(_))), "{met:?}");
}

/// Leader, learner and the emptied place itself die again at any moment of the change.
#[test]
fn e66_deaths_in_the_middle_of_a_change() {
    let network = Network::new(6);
    let mut cluster = Cluster::builder().nodes(5).start(&network);
    let running = cluster.load(&load());
    let mut slowest = Duration::ZERO;
    for round in 0..rounds(6) {
        running.wait_granted(20, PATIENCE);
        let leader = cluster.wait_leader();
        let place = cluster.hosts().filter(|&host| host != leader).nth(round % 4).unwrap();
        let moment = Duration::from_millis(rand::rng().random_range(0..400));
        running.remarking(&format!("{place:?} begins anew"), || cluster.node(place).restart());
        std::thread::sleep(moment);
        let second = if round % 2 == 0 { leader } else { place };
        running.remarking(&format!("{second:?} begins anew, {moment:?} later"), || {
            cluster.node(second).restart();
        });
        let start = Instant::now();
        cluster.wait_whole();
        slowest = slowest.max(start.elapsed());
    }
    running.wait_granted(50, PATIENCE);
    judge_all(&running.finish());
    same_state(&cluster);
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
}

/// The second of three dies while the place of the first is empty: that was the
/// majority, and nobody pretends otherwise, however many processes come back.
#[test]
fn e67_e74_the_memory_of_a_majority_is_lost() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    running.wait_granted(50, PATIENCE);
    let leader = cluster.wait_leader();
    let mut others = cluster.hosts().filter(|&host| host != leader);
    let (first, last) = (others.next().unwrap(), others.next().unwrap());
    cluster.node(first).kill();
    running.wait_granted(20, PATIENCE);
    running.remarking("the majority is gone", || cluster.node(leader).kill());
    // What was on its way arrives.
    std::thread::sleep(Duration::from_millis(500));
    let lost = ticketing_chaos::now();
    cluster.node(first).start();
    cluster.node(leader).start();
    let is_over = |status: &Option<Status>| status.as_ref().is_some_and(|status| status.role == "over");
    cluster.wait("the end of the cluster", |statuses| is_over(&statuses[last.0]));
    std::thread::sleep(Duration::from_secs(if long() { 600 } else { 8 }));
    for host in [first, leader] {
        let status = cluster.status(host).unwrap();
        assert_eq!((status.role.as_str(), status.node, status.term), ("blank", None, 0), "{host:?}");
    }
    assert!(is_over(&cluster.status(last)) && cluster.leader().is_none());
    for host in cluster.hosts() {
        let (code, said) = network.place(host).within(|| cluster.server(host).admin_get("/readyz"));
        assert_eq!(code, 503, "{said}");
        network.place(cluster.client()).within(|| {
            expect_not_active(cluster.address(host));
        });
    }
    let (done, said) = cluster.try_init(&[]);
    assert!(!done && said.contains("--new-identity"), "{said}");
    let history = running.finish();
    assert_eq!(crate::granted_since(&history, lost), 0, "granted without a majority");
    // Nothing can come any more, so nothing is late.
    crate::judge_by(
        &history,
        &ticketing_history::Rules { late_answer: None, late_expiry: None, ..crate::rules() },
    );
}

/// Held locks that take a while over a slow line, to a learner that must not vote
/// before it has them.
#[test]
fn e68_a_learner_behind_a_slow_line() {
    let Some(network) = lab(3) else { return };
    let mut cluster = Cluster::builder().start(&network);
    let leader = cluster.wait_leader();
    let mut session = cluster.session(leader);
    for _ in 0..4 {
        for number in 0..10_000 {
            let key = format!("a-key-that-takes-some-room-in-the-log-{}-{number}", rand::random::<u64>());
            session.acquire(key, number, 0, 250);
        }
        for _ in 0..10_000 {
            let reply = session.read();
            assert!(matches!(reply, Reply::Granted { .. } | Reply::Busy { .. }), "{reply:?}");
        }
    }
    let running = cluster.load(&load());
    let place = cluster.hosts().find(|&host| host != leader).unwrap();
    let old = id(&cluster, place);
    cluster.node(place).kill();
    network.lab().unwrap().rate(place, Some(64));
    running.remarking("a slow line", || cluster.node(place).start());
    let slow = Instant::now();
    let before = running.granted();
    while slow.elapsed() < Duration::from_secs(10) {
        let status = cluster.status(cluster.wait_leader()).unwrap();
        assert!(voters(&status).contains(&old), "the learner has a vote, and cannot have caught up");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(running.granted() > before + 100, "the slow learner held everybody up");
    running.remarking("a fast line again", || network.lab().unwrap().rate(place, None));
    cluster.wait_whole();
    running.wait_granted(50, PATIENCE);
    judge(&running.finish());
    same_state(&cluster);
}

/// A node that sleeps while others are replaced, and the log that it would need is
/// gone: it wakes up, learns of the new members, and disturbs nobody.
#[test]
fn e70_e71_a_sleeper_and_logs_that_are_short() {
    let network = Network::new(6);
    let small = Cluster::builder().nodes(5).arg("--log-memory").arg("65536");
    let mut cluster = small.start(&network);
    let running = cluster.load(&Load { brokers: 4, workers: 16, pause: Duration::ZERO, ..load() });
    running.wait_granted(500, PATIENCE);
    let leader = cluster.wait_leader();
    let others: Vec<Host> = cluster.hosts().filter(|&host| host != leader).collect();
    let [sleeper, one, two, _] = others[..] else { panic!("four others") };
    let asleep_at = cluster.status(sleeper).unwrap().applied;
    running.remarking("a node sleeps", || cluster.server(sleeper).signal(Signal::STOP));
    let is_whole = |statuses: &[Option<Status>], ids: &BTreeSet<u64>| {
        statuses.iter().flatten().filter(|status| &voters(status) == ids).count() == 4
    };
    for place in [one, two, one] {
        running.wait_granted(2_000, 2 * PATIENCE);
        running.remarking(&format!("{place:?} begins anew"), || cluster.node(place).restart());
        cluster.wait("a vote for it", |statuses| {
            let mut ids: BTreeSet<u64> = statuses.iter().flatten().filter_map(|status| status.node).collect();
            ids.insert(sleeper.0 as u64 + 1);
            ids.len() == 5 && is_whole(statuses, &ids)
        });
    }
    let status = cluster.status(cluster.wait_leader()).unwrap();
    assert!(status.applied > asleep_at + 100 && status.log_bytes < 4 << 20, "{status:?}");
    let term = status.term;
    running.remarking("it wakes up", || cluster.server(sleeper).signal(Signal::CONT));
    cluster.wait_whole();
    running.wait_granted(500, PATIENCE);
    assert_eq!(cluster.status(cluster.wait_leader()).unwrap().term, term, "somebody stood for election");
    judge_all(&running.finish());
    same_state(&cluster);
}

/// A new server takes the place of one that lives, from another address; that one ends.
#[test]
fn e61_a_planned_replacement_from_another_address() {
    let network = Network::new(5);
    let builder = Cluster::builder();
    let mut cluster = builder.start(&network);
    let running = cluster.load(&load());
    for leads in [false, true] {
        running.wait_granted(50, PATIENCE);
        let leader = cluster.wait_leader();
        let place = cluster.hosts().find(|&host| (host == leader) == leads).unwrap();
        let mut successor = builder.successor(&cluster, place, Host(4));
        successor.start();
        // It is not let in while the old one lives and nobody has asked for that.
        std::thread::sleep(Duration::from_secs(1));
        assert!(cluster.node(place).is_running());
        let (done, said) = cluster.try_replace(place);
        assert!(done, "{said}");
        wait_until("the end of the old server", PATIENCE, || !cluster.node(place).is_running());
        running.wait_granted(50, PATIENCE);
        // Back to its own address, the same way; this time the old one is simply gone.
        cluster.node(place).kill();
        successor.kill();
        cluster.node(place).start();
        cluster.wait_whole();
    }
    running.wait_granted(50, PATIENCE);
    judge_all(&running.finish());
    same_state(&cluster);
}

/// A process that slept through its own replacement ends when it wakes up.
#[test]
fn e61_a_sleeper_that_was_replaced_ends() {
    let network = Network::new(5);
    let builder = Cluster::builder();
    let mut cluster = builder.start(&network);
    let running = cluster.load(&load());
    for leads in [false, true] {
        running.wait_granted(50, PATIENCE);
        let leader = cluster.wait_leader();
        let place = cluster.hosts().find(|&host| (host == leader) == leads).unwrap();
        let old = id(&cluster, place);
        let mut session = cluster.session(place);
        cluster.server(place).signal(Signal::STOP);
        let mut successor = builder.successor(&cluster, place, Host(4));
        running.remarking(&format!("{place:?} sleeps, and is replaced"), || successor.start());
        cluster.wait("a vote for the successor", |statuses| {
            statuses.iter().flatten().filter(|status| !voters(status).contains(&old)).count() == 2
        });
        running.wait_granted(50, PATIENCE);
        session.acquire("free", 1, 0, 5);
        running.remarking("it wakes up", || cluster.server(place).signal(Signal::CONT));
        wait_until("the end of the sleeper", PATIENCE, || !cluster.node(place).is_running());
        let said = crate::heard(&mut session, Duration::from_secs(1));
        assert!(!said.iter().any(crate::is_definite), "{said:?}");
        cluster.node(place).kill();
        successor.kill();
        cluster.node(place).start();
        cluster.wait_whole();
    }
    running.wait_granted(50, PATIENCE);
    judge(&running.finish());
    same_state(&cluster);
}
