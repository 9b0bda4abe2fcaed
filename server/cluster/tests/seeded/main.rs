//! Mistakes that are put into the nodes of real clusters, one after the other: each is
//! seen by a judge who knows nothing but what a client was told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod client;
#[expect(dead_code, reason = "other tests use more of it")]
#[path = "../cluster/lab.rs"]
mod lab;
mod stories;

use std::time::Instant;

use ticketing_cluster::fault::Fault;
use ticketing_history::Rule;

use stories::Story;

/// The story that shows it, and what it breaks, whatever else it breaks with it.
const fn expected(fault: Fault) -> (Story, Rule) {
    match fault {
        Fault::ComesBackWithoutItsLastEntries => (stories::of_disks, Rule::Exclusion),
        Fault::TellsBeforeTheMajority => (stories::of_a_minority, Rule::UniqueToken),
        Fault::AppliesNothingOfSomeBatches => (stories::of_a_minority, Rule::Exclusion),
        Fault::TellsThatEntriesAreOlder => (stories::of_an_heir, Rule::Exclusion),
        Fault::SnapshotsHoldNothing => (stories::of_snapshots, Rule::Exclusion),
        Fault::NewIdentityBeginsAtOne => (stories::of_an_end, Rule::TokenOrder),
    }
}

#[test]
fn every_seeded_fault_is_caught() {
    for story in stories::ALL {
        assert_eq!(story(), [], "without any fault");
    }
    let mut escaped = Vec::new();
    for &fault in Fault::ALL {
        Fault::seed(Some(fault));
        let began = Instant::now();
        let (story, rule) = expected(fault);
        let broken = story();
        println!("{fault:?}: {:?}", broken.iter().map(|violation| violation.rule).collect::<Vec<_>>());
        match broken.iter().find(|violation| violation.rule == rule) {
            Some(violation) => println!("{}, after {:?}", violation.seen, began.elapsed()),
            None => escaped.push(fault),
        }
    }
    assert_eq!(escaped, []);
}
