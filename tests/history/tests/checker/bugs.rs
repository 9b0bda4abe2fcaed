//! A service with a bug is found out by what its clients see.

use ticketing_history::{Rule, check};

use crate::service::Bug;
use crate::world::Setting;

const HISTORIES: u64 = 400;

/// In `HISTORIES` histories of a service with this bug, one of these promises is seen
/// broken, in at least so many of them.
#[track_caller]
fn found(bug: Bug, rules: &[Rule], at_least: usize) {
    let caught = (0..HISTORIES).filter(|&seed| {
        let setting = Setting { bug: Some(bug), trouble: 40, ..Setting::of(seed) };
        let violations = check(&setting.run(), &setting.rules());
        violations.iter().any(|violation| rules.contains(&violation.rule))
    });
    let caught = caught.count();
    assert!(caught >= at_least, "{bug:?}: found in {caught} of {HISTORIES} histories only");
}

#[test]
fn leases_that_end_early() {
    found(Bug::ExpiresEarly, &[Rule::Exclusion, Rule::LostLock], 100);
}

#[test]
fn leases_that_never_end() {
    found(Bug::NeverExpires, &[Rule::LateExpiry, Rule::Stuck], 50);
}

#[test]
fn a_second_holder() {
    found(Bug::GrantsWhatIsHeld, &[Rule::Exclusion], 100);
}

#[test]
fn a_queue_that_serves_the_last_first() {
    found(Bug::ServesTheLastFirst, &[Rule::Fifo], 50);
}

#[test]
fn tries_that_barge() {
    found(Bug::LetsImmediateTriesBarge, &[Rule::Fifo], 50);
}

#[test]
fn releases_under_any_token() {
    found(Bug::TakesAnyToken, &[Rule::PhantomRelease], 100);
    found(Bug::TakesAnyToken, &[Rule::Exclusion, Rule::LostLock], 50);
}

#[test]
fn locks_that_are_released_twice() {
    found(Bug::ReleasesTwice, &[Rule::DoubleRelease], 50);
}

#[test]
fn a_leader_that_forgets() {
    found(Bug::ForgetsOnFailover, &[Rule::Exclusion, Rule::LostLock], 5);
}

#[test]
fn a_leader_that_reuses_tokens() {
    found(Bug::ReusesTokens, &[Rule::UniqueToken, Rule::TokenOrder], 5);
}

#[test]
fn tokens_of_each_key() {
    found(Bug::CountsTokensPerKey, &[Rule::TokenOrder], 100);
}

#[test]
fn tokens_that_are_skipped() {
    found(Bug::SkipsTokens, &[Rule::TokenGap], 100);
}

#[test]
fn waits_that_end_early() {
    found(Bug::TimesOutEarly, &[Rule::EarlyTimeout], 50);
}

#[test]
fn waits_that_never_end() {
    found(Bug::NeverTimesOut, &[Rule::LateAnswer, Rule::NoAnswer], 50);
}

#[test]
fn a_free_key_with_waiters() {
    found(Bug::LosesWakeups, &[Rule::Stuck], 50);
}

#[test]
fn locks_that_are_lost() {
    found(Bug::LosesLocks, &[Rule::LostLock], 100);
}

#[test]
fn verifies_that_lie() {
    found(Bug::LiesToVerify, &[Rule::Verdict], 1);
}

#[test]
fn locks_for_those_that_were_timed_out() {
    found(Bug::GrantsAfterTimeout, &[Rule::TokenGap, Rule::Stuck], 50);
}

#[test]
fn refusals_for_nothing() {
    found(Bug::RefusesForNothing, &[Rule::GroundlessBusy], 100);
}

#[test]
fn tickets_that_last_too_long() {
    found(Bug::ClientCountsFromReceipt, &[Rule::Overclaim], 50);
}
