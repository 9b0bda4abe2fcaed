//! From when nodes count a lease whose grant came to them late.

use std::time::Duration;

use ticketing_engine::{Effect, Fate};

use crate::lab::{Lab, Memory, clock, eventually, fate, grant, wait};

/// So long a node was away, or was not there yet.
const AWAY: Duration = Duration::from_secs(5);

/// Less than that, and enough for a busy machine to send an entry.
const LATE: u64 = 2_500_000_000;

/// Has a key granted; returns when that was, at the earliest.
fn take(lab: &Lab, key: &[u8]) -> u64 {
    let (leader, office) = lab.leader();
    let node = lab.node(leader);
    let replica = node.cluster.replica().unwrap();
    let place = replica.place();
    let token = place.first_token.max(replica.table().next_token());
    let before = clock();
    assert_eq!(fate(&node.propose(office, place.batches + 1, &[grant(key, token)])), Fate::Applied);
    before
}

/// Waits until a node has learnt of a grant, and looks from when it counts.
fn assert_counts_from(lab: &Lab, slot: usize, key: &[u8], granted: u64) {
    let since = eventually("it knows of the grant", || lab.since(slot, key));
    assert!(since >= granted, "node {slot} is early by {} ns", granted - since);
    assert!(since - granted < LATE, "node {slot} is late by {} ns", since - granted);
}

#[test]
fn a_node_that_comes_late_learns_how_much_of_a_lease_has_passed() {
    let mut lab = Lab::begun(3);
    let granted = take(&lab, b"k");
    (0..3).for_each(|slot| assert_counts_from(&lab, slot, b"k", granted));
    std::thread::sleep(AWAY);
    // In the end nobody is left who was there.
    for slot in 0..3 {
        lab.kill(slot);
        lab.restart(slot);
        assert_counts_from(&lab, slot, b"k", granted);
        lab.wait_for_vote(slot);
    }
    let (leader, _) = lab.leader();
    assert_counts_from(&lab, leader, b"k", granted);
}

/// A node that was away does not know for how long. It learns that of what it missed.
#[test]
fn a_node_with_a_disk_is_never_early_after_a_restart() {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let before = take(&lab, b"before");
    let (leader, _) = lab.leader();
    let follower = (leader + 1) % 3;
    wait("it has it", || lab.since(follower, b"before").is_some());
    lab.kill(follower);
    let missed = take(&lab, b"missed");
    std::thread::sleep(AWAY);
    let restarted = clock();
    lab.restart(follower);
    assert_counts_from(&lab, follower, b"missed", missed);
    let since = lab.since(follower, b"before").unwrap();
    assert!(since >= before, "early by {} ns", before - since);
    assert!(since < restarted + LATE, "it counts from the restart at the latest");
}

/// A lease that ends and begins again counts from its own beginning.
#[test]
fn a_key_that_goes_on_counts_from_its_hand_off() {
    let lab = Lab::begun(3);
    take(&lab, b"k");
    let (leader, office) = lab.leader();
    let replica = lab.node(leader).cluster.replica().unwrap();
    let ended = replica.table().get(b"k").unwrap().token;
    let granted = clock();
    let handed =
        Effect::HandOff { key: b"k", ended, expired: false, owner: 2, token: ended + 1, lease_secs: 9 };
    let told = lab.node(leader).propose(office, replica.place().batches + 1, &[handed]);
    assert_eq!(fate(&told), Fate::Applied);
    for slot in 0..3 {
        let has_it = || lab.node(slot).cluster.replica().unwrap().table().get(b"k").unwrap().token > ended;
        wait("it knows of the hand-off", has_it);
        assert_counts_from(&lab, slot, b"k", granted);
    }
}
