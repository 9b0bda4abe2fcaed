//! Nodes that forget everything when their process ends.

use std::time::{Duration, Instant};

use ticketing_cluster::{InitError, Stage};
use ticketing_engine::{Effect, Fate, Office};

use crate::lab::{Lab, eventually, fate, grant, wait};

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
fn batches_are_applied_in_their_order_and_those_of_another_office_are_refused() {
    let lab = Lab::begun(3);
    let (leader, office) = lab.leader();
    let node = lab.node(leader);
    let token = node.cluster.replica().unwrap().place().first_token;
    let second = node.propose(office, 2, &[Effect::Release { key: b"k", token }]);
    let earlier = Office { run: office.run + 7, ..office };
    assert_eq!(fate(&node.propose(earlier, 1, &[grant(b"k", token)])), Fate::Refused);
    let follower = lab.up().find(|node| node.office().is_none()).unwrap();
    assert_eq!(fate(&follower.propose(office, 1, &[grant(b"k", token)])), Fate::Refused);
    assert!(second.try_recv().is_err(), "the first is missing");
    assert_eq!(fate(&node.propose(office, 1, &[grant(b"k", token)])), Fate::Applied);
    assert_eq!(fate(&second), Fate::Applied);
    node.cluster.renounce(office);
    let next = eventually("another office is taken", || node.office().filter(|next| *next != office));
    assert_eq!((next.term, next.run), (office.term, office.run + 1));
    assert_eq!(fate(&node.propose(office, 3, &[])), Fate::Refused);
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
        lab.wait_for_vote(slot);
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
