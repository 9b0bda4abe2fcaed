//! No run breaks a rule, and every fault that is put in does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::thread::available_parallelism;
use std::time::Duration;

use ticketing_simulation::{Campaign, Count, Mutant, campaign, run};

/// As much as everyday tests see. The thousand hours that a change must have seen are a step of
/// their own of `cargo xtask test`: `cargo run -p ticketing-simulation -- --hours 1000`.
const HOURS: u64 = 100;

/// In that time, on the machine that builds.
const AT_MOST: Duration = Duration::from_secs(360);

/// Within so many hours every mutant is caught.
const MUTANT_HOURS: u64 = 150;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"))
}

fn threads() -> usize {
    available_parallelism().map_or(1, Into::into)
}

/// `SIMULATION_HOURS` and `SIMULATION_FIRST_SEED` make it longer, shorter, or another one.
#[test]
fn no_rule_is_broken_in_a_hundred_hours() {
    let hours = number("SIMULATION_HOURS", HOURS);
    let simulated = Duration::from_secs(hours * 3600);
    let all = campaign(number("SIMULATION_FIRST_SEED", 1), threads(), simulated, AT_MOST, None);
    println!("{all}");
    if let Some(failure) = all.failure {
        panic!("\n{failure}");
    }
    assert!(all.simulated >= simulated, "no more than that in {AT_MOST:?}");
    if hours >= 100 {
        assert_something_happened(all.count, hours);
    }
}

/// A run in which nothing happens proves nothing.
fn assert_something_happened(count: Count, hours: u64) {
    assert!(count.granted > 100 * hours, "{count:?}");
    for happened in [count.timed_out, count.busy, count.expired, count.handed_off, count.offices] {
        assert!(happened > 10 * hours, "{count:?}");
    }
    for happened in [count.uncertain, count.verified, count.snapshots, count.replaced] {
        assert!(happened > hours, "{count:?}");
    }
    assert!(count.skipped > hours / 10, "{count:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..=20 {
        let again = std::thread::spawn(move || run(seed, None));
        assert_eq!(run(seed, None), again.join().unwrap(), "seed {seed}");
    }
    assert_ne!(run(1, None).digest, run(2, None).digest);
}

#[test]
fn every_mutant_is_caught() {
    let hours = Duration::from_secs(MUTANT_HOURS * 3600);
    let mut escaped = Vec::new();
    for &mutant in Mutant::ALL {
        // One after the other: the first seed that catches it is the same every time.
        let Campaign { failure, runs, .. } = campaign(1, 1, hours, AT_MOST, Some(mutant));
        match failure {
            Some(failure) => {
                let broken = failure.outcome.broken.clone().unwrap();
                println!("{mutant}: {} ({} of run {runs})", broken.rule, failure.seed);
                assert_eq!(run(failure.seed, Some(mutant)), failure.outcome, "seen again: {mutant}");
            }
            None => escaped.push(mutant),
        }
    }
    assert_eq!(escaped, [], "not caught in {MUTANT_HOURS} hours");
}

#[test]
fn a_failure_says_what_went_wrong_and_how_to_see_it_again() {
    let mutant = Some(Mutant::SettlesAtAppend);
    let failure = campaign(7, 1, Duration::from_secs(3600), AT_MOST, mutant).failure.unwrap();
    let text = failure.to_string();
    assert!(text.contains("seed 7 breaks the rule \"Commit\": "), "{text}");
    assert!(text.ends_with("-- --seed 7 --mutant settles-at-append"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("  ")).count();
    assert!((5..=50).contains(&lines), "{text}");
}
