//! Random schedules, on all of which the engines, the models, the tables and the ledger
//! must agree.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::lockstep::Lockstep;
use crate::office::Seen;
use crate::schedule::{Schedule, in_office, with_an_end, with_crowds, with_successors};

fn agree(schedule: &Schedule) -> Result<Seen, TestCaseError> {
    let mut lockstep = Lockstep::new(schedule);
    match lockstep.run() {
        Ok(()) => Ok(lockstep.seen()),
        Err(objection) => Err(TestCaseError::fail(format!("\n{}\n{objection}\n", lockstep.story))),
    }
}

/// Every schedule is a small world of its own, and quick: so many of them.
fn many() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn an_engine_in_office_agrees_with_the_model(schedule in in_office()) {
        agree(&schedule)?;
    }

    #[test]
    fn an_engine_that_drains_or_loses_its_office_agrees_with_the_model(schedule in with_an_end()) {
        agree(&schedule)?;
    }

    #[test]
    fn engines_that_follow_each_other_agree_with_their_models(schedule in with_successors()) {
        agree(&schedule)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..many() })]

    #[test]
    fn an_engine_with_long_queues_agrees_with_the_model(schedule in with_crowds()) {
        agree(&schedule)?;
    }
}

/// The schedules above would prove little if they did not go everywhere.
#[test]
fn schedules_reach_everything_that_is_worth_a_test() {
    let mut seen = Seen::new();
    let mut runner = TestRunner::deterministic();
    for schedules in [in_office().boxed(), with_an_end().boxed(), with_successors().boxed()] {
        for _ in 0..300 {
            let schedule = schedules.new_tree(&mut runner).unwrap().current();
            for (what, count) in agree(&schedule).unwrap() {
                *seen.entry(what).or_default() += count;
            }
        }
    }
    let all = [
        "a batch survived",
        "a batch was lost",
        "a commit was told early",
        "a commit was told that was none",
        "a lease was over before it was taken over",
        "a snapshot held locks",
        "a snapshot held tombstones",
        "a snapshot was older than a clock",
        "an earlier engine told of its grant",
        "an engine did not know that its office was over",
        "an older lock expired",
        "an older lock was handed off",
        "an older lock was released",
        "an unknown batch was applied",
        "bury",
        "busy",
        "close overloaded",
        "close unknown",
        "expire",
        "expire and hand off",
        "forget",
        "grant",
        "granted",
        "locks were taken over",
        "not held",
        "not leader",
        "place",
        "release",
        "release and hand off",
        "released",
        "timed out",
        "tombstones were taken over",
        "verified",
        "verified busy",
    ];
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), all, "{seen:#?}");
}
