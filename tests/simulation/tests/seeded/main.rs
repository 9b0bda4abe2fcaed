//! Mistakes that are put into the engine itself, one after the other: each is seen by a
//! judge who knows nothing but what clients saw.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod desk;

use std::time::Duration;

use ticketing_engine::fault::Fault;
use ticketing_history::{Rule, Violation};
use ticketing_simulation::{as_clients_see_it, campaign, run};

use desk::Desk;

/// Within so many runs of the simulation a mistake is seen.
const RUNS: u64 = 60;

/// In so much time the simulation's own ledger sees a mistake that seldom shows.
const LEDGER_TIME: Duration = Duration::from_secs(400 * 3600);
const THREADS: usize = 2;

/// What brings a mistake to light.
enum Way {
    /// Chance, in clusters with faults of every other kind.
    Simulation,
    /// Something that happens seldom, and that chance would take long to show to clients.
    Story(fn() -> Vec<Violation>),
}

/// What shows each one, and what it breaks, whatever else it breaks with it.
const fn expected(fault: Fault) -> (Way, Rule) {
    use Way::{Simulation, Story};
    match fault {
        Fault::ReleasesUnderAnyToken | Fault::ConfirmsEveryRelease => (Simulation, Rule::PhantomRelease),
        Fault::SkipsTokens | Fault::UnknownIsRefused => (Simulation, Rule::TokenGap),
        Fault::TellsTwiceTheLease => (Simulation, Rule::Overclaim),
        Fault::ServesTheLastFirst => (Simulation, Rule::Fifo),
        Fault::WaitsRunOutEarly => (Simulation, Rule::EarlyTimeout),
        Fault::AnswersBeforeTheCommit | Fault::UnknownIsApplied => (Simulation, Rule::UniqueToken),
        Fault::HalvesLeases
        | Fault::KeepsTheOldLease
        | Fault::EndsLeasesThatItFinds
        | Fault::HandOffKeepsTheAge
        | Fault::SnapshotsAgeLeases => (Simulation, Rule::Exclusion),
        Fault::VerifyLeavesTheWaiter => (Story(a_verified_waiter), Rule::TokenGap),
        Fault::VerifyLeavesNoTombstone => (Story(a_late_acquire), Rule::TokenGap),
        Fault::ForgetsWhatItVerified => (Story(a_verified_grant), Rule::LostLock),
        Fault::GivesBackWhateverIsHeld => (Story(a_late_give_back), Rule::LostLock),
    }
}

#[test]
fn every_seeded_fault_is_caught() {
    let mut escaped = Vec::new();
    let mut runs = 0;
    for &fault in Fault::ALL {
        Fault::seed(Some(fault));
        let (way, rule) = expected(fault);
        let the_rule = |broken: Vec<Violation>| broken.into_iter().find(|violation| violation.rule == rule);
        let caught = match way {
            Way::Story(story) => {
                // Chance brings it about as well, and the ledger sees what clients do not.
                let found = campaign(1, THREADS, LEDGER_TIME, Duration::MAX, None).failure.is_some();
                assert!(found, "{fault:?}: the ledger is silent");
                the_rule(story())
            }
            Way::Simulation => (1..=RUNS).find_map(|seed| {
                let seen = the_rule(as_clients_see_it(seed))?;
                // The ledger knows more.
                assert!(run(seed, None).broken.is_some(), "{fault:?}, seed {seed}: the ledger is silent");
                runs = runs.max(seed);
                Some(seen)
            }),
        };
        match caught {
            Some(violation) => println!("{fault:?}: {rule:?}, {}", violation.seen),
            None => escaped.push(fault),
        }
    }
    Fault::seed(None);
    assert_eq!(escaped, []);
    for &fault in Fault::ALL {
        if let (Way::Story(story), _) = expected(fault) {
            assert_eq!(story(), [], "{fault:?} is not there");
        }
    }
    for seed in 1..=runs {
        assert_eq!(as_clients_see_it(seed), [], "run {seed}, without any fault");
    }
}

/// Its client has lost the connection, the server has not; it is told "never".
fn a_verified_waiter() -> Vec<Violation> {
    let mut desk = Desk::new();
    let holds = desk.acquire(1, "k", (0, 60));
    let waits = desk.acquire(2, "k", (60, 60));
    desk.loses(waits);
    desk.verify(3, waits);
    desk.acquire(3, "before", (0, 60));
    desk.release(1, holds);
    desk.acquire(3, "after", (0, 60));
    desk.judge()
}

/// It was on its way for longer than its client waited, and the client was told "never".
fn a_late_acquire() -> Vec<Violation> {
    let mut desk = Desk::new();
    let late = desk.sets_out("k", (10, 60));
    desk.loses(late);
    desk.verify(3, late);
    desk.acquire(3, "before", (0, 60));
    desk.arrives(2, late);
    desk.acquire(3, "after", (0, 60));
    desk.judge()
}

/// Its answer never left the server, but a verify has told its client.
fn a_verified_grant() -> Vec<Violation> {
    let mut desk = Desk::new();
    let lost = desk.sets_out("k", (0, 60));
    desk.loses(lost);
    desk.arrives(2, lost);
    desk.verify(3, lost);
    desk.undelivered(lost);
    desk.release(3, lost);
    desk.judge()
}

/// That its answer never left the server is found when its lease is over.
fn a_late_give_back() -> Vec<Violation> {
    let mut desk = Desk::new();
    let lost = desk.sets_out("k", (0, 5));
    desk.loses(lost);
    desk.arrives(2, lost);
    desk.passes(6);
    let next = desk.acquire(3, "k", (0, 60));
    desk.undelivered(lost);
    desk.release(3, next);
    desk.judge()
}
