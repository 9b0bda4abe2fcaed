//! What happens to the clusters. A fault may keep them from doing what they should, so
//! nothing is waited for without end.

use std::time::{Duration, Instant};

use ticketing_history::Violation;

use crate::client::Client;
use crate::lab::{Lab, Memory, clock};

/// It says what was broken in it.
pub(crate) type Story = fn() -> Vec<Violation>;

pub(crate) const ALL: &[Story] = &[of_disks, of_a_minority, of_an_heir, of_snapshots, of_an_end];

/// Longer than no lock of a story is held.
const LEASE: u8 = 250;

/// Waits for something that a fault may prevent.
fn patiently(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn leader(lab: &Lab) -> Option<usize> {
    lab.nodes.iter().position(|node| node.as_ref().is_some_and(|node| node.office().is_some()))
}

/// Has a node lead, if the others agree.
fn make_leader(lab: &Lab, slot: usize) {
    patiently(|| match leader(lab) {
        Some(now) if now == slot => true,
        Some(now) => {
            let node = lab.node(now);
            let runtime = node.runtime.as_ref().unwrap();
            runtime.block_on(node.cluster.hand_over(Duration::from_secs(1)));
            false
        }
        None => false,
    });
}

/// Everybody loses power at once.
pub(crate) fn of_disks() -> Vec<Violation> {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let mut client = Client::new();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let tokens = keys.map(|key| client.acquire(&lab, key, LEASE));
    lab.kill_all();
    lab.restart_all();
    for (key, token) in keys.into_iter().zip(tokens).skip(3) {
        client.acquire(&lab, key, LEASE);
        token.into_iter().for_each(|token| client.release(&lab, key, token));
    }
    client.judge()
}

/// A leader is left alone, and comes back when the others have decided without it.
pub(crate) fn of_a_minority() -> Vec<Violation> {
    let mut lab = Lab::with(3, Memory::Log);
    lab.init(false).unwrap();
    let mut client = Client::new();
    client.acquire(&lab, "before", LEASE);
    let Some(first) = leader(&lab) else { return client.judge() };
    let others = [(first + 1) % 3, (first + 2) % 3];
    others.iter().for_each(|&slot| lab.kill(slot));
    client.patience = Duration::from_millis(300);
    client.acquire(&lab, "alone", LEASE);
    client.patience = Duration::from_secs(10);
    lab.kill(first);
    others.iter().for_each(|&slot| lab.restart(slot));
    for key in ["alone", "before", "after", "later"] {
        client.acquire(&lab, key, LEASE);
    }
    lab.restart(first);
    // There is one other who can elect it.
    let Some(now) = leader(&lab) else { return client.judge() };
    patiently(|| lab.node(first).status().applied >= lab.node(now).status().applied);
    lab.kill(others[usize::from(now == others[0])]);
    make_leader(&lab, first);
    for key in ["later", "after", "before", "alone"] {
        client.acquire(&lab, key, LEASE);
    }
    client.judge()
}

/// A leader dies, and whoever is next has what it was sent.
pub(crate) fn of_an_heir() -> Vec<Violation> {
    let mut lab = Lab::begun(3);
    let mut client = Client::new();
    client.acquire(&lab, "a", LEASE);
    let Some(first) = leader(&lab) else { return client.judge() };
    lab.kill(first);
    client.acquire(&lab, "a", LEASE);
    client.judge()
}

/// Nodes that forget come back, by snapshots.
pub(crate) fn of_snapshots() -> Vec<Violation> {
    let mut lab = Lab::keeping(3, Memory::Nothing, 1);
    lab.init(false).unwrap();
    let mut client = Client::new();
    let keys = ["a", "b", "c"];
    let tokens = keys.map(|key| client.acquire(&lab, key, LEASE));
    let Some(first) = leader(&lab) else { return client.judge() };
    for slot in [(first + 1) % 3, (first + 2) % 3] {
        lab.kill(slot);
        client.acquire(&lab, &format!("while {slot} is down"), LEASE);
        // A snapshot stands for the log now.
        patiently(|| lab.node(first).status().log_bytes < 500);
        lab.restart(slot);
        patiently(|| {
            let (leads, came) = (lab.node(first).status(), lab.node(slot).status());
            let votes = leads.voters.iter().any(|voter| Some(voter.node) == came.node);
            // In the middle of the change the next death would be one too many.
            votes && leads.voters.len() == 3 && leads.learners.is_empty() && came.applied >= leads.applied
        });
    }
    lab.kill(first);
    for (key, token) in keys.into_iter().zip(tokens) {
        client.acquire(&lab, key, LEASE);
        token.into_iter().for_each(|token| client.release(&lab, key, token));
    }
    client.judge()
}

/// The memory of everybody is lost, and another identity begins.
pub(crate) fn of_an_end() -> Vec<Violation> {
    let mut lab = Lab::begun(3);
    let mut client = Client::new();
    client.acquire(&lab, "a", LEASE);
    client.acquire(&lab, "b", LEASE);
    let from = clock();
    lab.kill_all();
    lab.restart_all();
    patiently(|| lab.init(true).is_ok());
    client.everything_is_forgotten(from);
    client.acquire(&lab, "a", LEASE);
    client.judge()
}
