//! Clusters of nodes in one process, each with a runtime of its own; to drop that
//! runtime is to kill the node.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketing_cluster::{Cluster, Config, Init, InitError, Slots, Stage, Status, Timing};
use ticketing_engine::{Effect, Fate, Office, record};
use ticketing_peer::Secret;
use tokio::runtime::Runtime;

fn clock() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    1_000_000_000_000 + u64::try_from(since.as_nanos()).unwrap()
}

fn peer_config() -> ticketing_peer::Config {
    let secret = Secret::new(b"a secret for the tests").unwrap();
    ticketing_peer::Config { secret, tls: None, limits: ticketing_peer::Limits::default() }
}

struct Node {
    cluster: Cluster,
    runtime: Option<Runtime>,
}

impl Node {
    fn start(slots: &Slots, slot: u8, listener: TcpListener) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let config = Config {
            slots: slots.clone(),
            slot,
            peer: peer_config(),
            timing: Timing::default(),
            clock,
            hash_seed: [1, u64::from(slot)],
            data_dir: None,
            state_dir: None,
            log_memory: ticketing_cluster::LOG_MEMORY,
        };
        let cluster = runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            Cluster::start(config, listener).await.unwrap()
        });
        Self { cluster, runtime: Some(runtime) }
    }

    fn status(&self) -> Status {
        self.cluster.status()
    }

    fn office(&self) -> Option<Office> {
        self.cluster.standing().borrow().office
    }

    fn stage(&self) -> Stage {
        self.cluster.standing().borrow().stage
    }

    fn propose(&self, office: Office, seq: u64, effects: &[Effect<'_>]) -> mpsc::Receiver<Fate> {
        let mut bytes = Vec::new();
        record::encode(effects.iter().copied(), &mut bytes);
        let (sender, told) = mpsc::channel();
        let runtime = self.runtime.as_ref().unwrap();
        let proposed = self.cluster.propose(office, seq, Bytes::from(bytes), move |fate| {
            let _ = sender.send(fate);
        });
        runtime.block_on(proposed);
        told
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(5));
    }
}

struct Lab {
    slots: Slots,
    nodes: Vec<Option<Node>>,
}

impl Lab {
    fn blank(count: usize) -> Self {
        let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect::<Vec<_>>();
        let text = listeners.iter().enumerate().map(|(index, listener)| {
            format!("n{index}={}@127.0.0.1:{}", listener.local_addr().unwrap(), index + 1)
        });
        let slots = text.collect::<Vec<_>>().join(",").parse::<Slots>().unwrap();
        let nodes = (0..).zip(listeners);
        let nodes = nodes.map(|(slot, listener)| Some(Node::start(&slots, slot, listener))).collect();
        Self { slots, nodes }
    }

    fn begun(count: usize) -> Self {
        let lab = Self::blank(count);
        lab.init(false).unwrap();
        lab
    }

    fn init(&self, new_identity: bool) -> Result<String, InitError> {
        let init = Init {
            slots: self.slots.clone(),
            peer: peer_config(),
            token_floor: 0,
            new_identity,
            wait: Duration::from_secs(5),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(init.run()).map(|identity| identity.to_string())
    }

    fn up(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    fn node(&self, slot: usize) -> &Node {
        self.nodes[slot].as_ref().unwrap()
    }

    fn kill(&mut self, slot: usize) {
        self.nodes[slot] = None;
    }

    fn restart(&mut self, slot: usize) {
        let address =
            self.slots.get(u8::try_from(slot).unwrap()).unwrap().peer.parse::<SocketAddr>().unwrap();
        let listener = eventually("the address is free again", || bind_again(address));
        self.nodes[slot] = Some(Node::start(&self.slots, u8::try_from(slot).unwrap(), listener));
    }

    /// The slot of the node that is in office.
    fn leader(&self) -> (usize, Office) {
        eventually("somebody is in office", || {
            let mut nodes = self.nodes.iter().enumerate();
            nodes.find_map(|(slot, node)| Some((slot, node.as_ref()?.office()?)))
        })
    }
}

/// As a server does.
fn bind_again(address: SocketAddr) -> Option<TcpListener> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::net::TcpListener::bind(address).await.ok()?.into_std().ok() })
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "not within 30 seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

fn grant(key: &[u8], token: u64) -> Effect<'_> {
    Effect::Grant { key, owner: 1, token, lease_secs: 250 }
}

fn fate(told: &mpsc::Receiver<Fate>) -> Fate {
    told.recv_timeout(Duration::from_secs(30)).expect("every batch has a fate")
}

#[test]
fn all_nodes_agree_on_what_was_proposed() {
    for count in [3, 5] {
        let lab = Lab::begun(count);
        let (leader, office) = lab.leader();
        let first = lab.node(leader).cluster.replica().unwrap().place().first_token;
        assert!(first > 1 << 60, "tokens begin at the wall clock");
        let fates = (1..=100).map(|seq| {
            let key = seq.to_string();
            lab.node(leader).propose(office, seq, &[grant(key.as_bytes(), first + seq)])
        });
        for told in fates.collect::<Vec<_>>() {
            assert_eq!(fate(&told), Fate::Applied);
        }
        wait("all nodes hold the same", || {
            let hash = lab.node(leader).status().state_hash;
            lab.up().all(|node| node.status().held == 100 && node.status().state_hash == hash)
        });
    }
}

#[test]
fn batches_out_of_order_are_refused() {
    let lab = Lab::begun(3);
    let (leader, office) = lab.leader();
    let node = lab.node(leader);
    let token = node.cluster.replica().unwrap().place().first_token;
    assert_eq!(fate(&node.propose(office, 2, &[grant(b"k", token)])), Fate::Refused);
    let earlier = Office { run: office.run + 7, ..office };
    assert_eq!(fate(&node.propose(earlier, 1, &[grant(b"k", token)])), Fate::Refused);
    let follower = lab.up().find(|node| node.office().is_none()).unwrap();
    assert_eq!(fate(&follower.propose(office, 1, &[grant(b"k", token)])), Fate::Refused);
    assert_eq!(fate(&node.propose(office, 1, &[grant(b"k", token)])), Fate::Applied);
    node.cluster.renounce(office);
    let next = eventually("another office is taken", || node.office().filter(|next| *next != office));
    assert_eq!((next.term, next.run), (office.term, office.run + 1));
    assert_eq!(fate(&node.propose(office, 2, &[])), Fate::Refused);
    assert_eq!(fate(&node.propose(next, 1, &[])), Fate::Applied);
}

#[test]
fn a_dead_leader_is_followed_and_comes_back_as_another_node() {
    let mut lab = Lab::begun(3);
    let (leader, office) = lab.leader();
    let token = lab.node(leader).cluster.replica().unwrap().place().first_token;
    assert_eq!(fate(&lab.node(leader).propose(office, 1, &[grant(b"k", token)])), Fate::Applied);
    let old = lab.node(leader).status().node.unwrap();
    lab.kill(leader);
    let (next, later) = lab.leader();
    assert!(later > office && next != leader);
    assert_eq!(lab.node(next).cluster.replica().unwrap().table().held(), 1, "the lock is still held");
    lab.restart(leader);
    wait("three voters, the old one not among them", || {
        let voters = lab.node(next).status().voters;
        voters.len() == 3 && voters.iter().all(|voter| voter.node != old)
    });
    wait("the new node holds what the others hold", || {
        lab.node(leader).status().state_hash == lab.node(next).status().state_hash
            && lab.node(leader).status().held == 1
    });
    assert!(lab.node(leader).status().node.unwrap() > 5);
    assert_eq!(lab.leader(), (next, later), "nobody was unseated");
}

#[test]
fn every_place_is_emptied_and_filled_in_turn() {
    let mut lab = Lab::begun(3);
    for round in 0..6 {
        let slot = round % 3;
        lab.leader();
        lab.kill(slot);
        lab.restart(slot);
        wait("it has a vote", || {
            let node = lab.node(slot).status();
            node.node.is_some() && node.voters.iter().any(|voter| Some(voter.node) == node.node)
        });
    }
    let (leader, _) = lab.leader();
    wait("no one is left over", || {
        let status = lab.node(leader).status();
        status.voters.len() == 3 && status.learners.is_empty()
    });
}

#[test]
fn a_cluster_that_has_lost_its_memory_has_ended() {
    let mut lab = Lab::begun(3);
    let (leader, _) = lab.leader();
    let survivor = (leader + 1) % 3;
    let others = [leader, (leader + 2) % 3];
    others.iter().for_each(|&slot| lab.kill(slot));
    others.iter().for_each(|&slot| lab.restart(slot));
    wait("the survivor says that it is over", || lab.node(survivor).stage() == Stage::Over);
    assert!(lab.up().all(|node| node.office().is_none()));
    assert!(others.iter().all(|&slot| lab.node(slot).stage() == Stage::Blank));
    assert!(matches!(lab.init(false), Err(InitError::Ended { .. })));
    let identity = lab.init(true).unwrap();
    lab.leader();
    wait("all are in the new cluster", || {
        lab.up().all(|node| node.status().identity.as_ref() == Some(&identity))
    });
}

#[test]
fn nothing_begins_by_itself_and_nothing_begins_twice() {
    let lab = Lab::blank(3);
    std::thread::sleep(Duration::from_secs(2));
    assert!(lab.up().all(|node| node.stage() == Stage::Blank));
    lab.init(false).unwrap();
    lab.leader();
    assert!(matches!(lab.init(false), Err(InitError::Exists { .. })));
    assert!(matches!(lab.init(true), Err(InitError::Exists { .. })));
}

#[test]
fn a_leader_hands_over_without_an_election_timeout() {
    let lab = Lab::begun(3);
    for _ in 0..5 {
        let (leader, office) = lab.leader();
        let node = lab.node(leader);
        let start = Instant::now();
        node.runtime.as_ref().unwrap().block_on(node.cluster.hand_over(Duration::from_secs(2)));
        let next = eventually("another one is in office", || {
            let (slot, next) = lab.leader();
            (slot != leader && next > office).then_some(slot)
        });
        println!("{leader} to {next} in {:?}", start.elapsed());
    }
}
