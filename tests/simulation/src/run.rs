//! Runs, one after the other and beside each other.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ledger::{Broken, Count};
use crate::mutant::Mutant;
use crate::world::World;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Simulated time.
    pub simulated: Duration,
    /// Events that happened in it.
    pub events: u64,
    /// Equal for two runs in which the same happened.
    pub digest: u64,
    /// How much happened.
    pub count: Count,
    /// The rule that was broken first.
    pub broken: Option<Broken>,
    /// What happened last.
    pub trace: Vec<String>,
}

/// As many lines of what happened as a failure shows.
const LINES: usize = 50;

/// Runs one seed: the same seed is the same run, on every machine.
#[must_use]
pub fn run(seed: u64, mutant: Option<Mutant>) -> Outcome {
    replay(seed, mutant, LINES)
}

/// Runs one seed and keeps so many lines of what happened last.
#[must_use]
pub fn replay(seed: u64, mutant: Option<Mutant>, lines: usize) -> Outcome {
    World::new(seed, mutant, lines).run()
}

/// Runs one seed to its end, and judges it by what clients saw alone.
#[cfg(feature = "seeded-faults")]
#[must_use]
pub fn as_clients_see_it(seed: u64) -> Vec<ticketing_history::Violation> {
    World::new(seed, None, 1).run_for_clients()
}

/// A run that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that makes it happen again.
    pub seed: u64,
    /// The fault that was put in.
    pub mutant: Option<Mutant>,
    /// How it went.
    pub outcome: Outcome,
}

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// How many there were.
    pub runs: u64,
    /// Simulated time of all.
    pub simulated: Duration,
    /// Events of all.
    pub events: u64,
    /// Real time.
    pub took: Duration,
    /// How much happened in all.
    pub count: Count,
    /// The failure with the smallest seed.
    pub failure: Option<Failure>,
}

/// Runs one seed after the other, from `first` on, on as many threads, until so much
/// time has been simulated, the deadline has passed, or a rule was broken.
#[must_use]
pub fn campaign(
    first: u64,
    threads: usize,
    simulated: Duration,
    at_most: Duration,
    mutant: Option<Mutant>,
) -> Campaign {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let all = Mutex::new(Campaign::default());
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let one_after_the_other = || {
        loop {
            let done = {
                let all = lock();
                all.failure.is_some() || all.simulated >= simulated || began.elapsed() >= at_most
            };
            if done {
                return;
            }
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let outcome = run(seed, mutant);
            lock().add(seed, mutant, outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(one_after_the_other);
        }
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.took = began.elapsed();
    all
}

impl Campaign {
    fn add(&mut self, seed: u64, mutant: Option<Mutant>, outcome: Outcome) {
        self.runs += 1;
        self.simulated += outcome.simulated;
        self.events += outcome.events;
        self.count += outcome.count;
        let is_first = self.failure.as_ref().is_none_or(|failure| seed < failure.seed);
        if outcome.broken.is_some() && is_first {
            self.failure = Some(Failure { seed, mutant, outcome });
        }
    }

    /// Simulated hours in a second of real time.
    #[must_use]
    pub fn hours_a_second(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let took = self.took.as_secs_f64();
        write!(f, "{} runs, {hours:.1} simulated cluster-hours in {took:.1} s", self.runs)?;
        writeln!(f, " ({:.1} a second), {} events", self.hours_a_second(), self.events)?;
        let Count { asked, granted, timed_out, busy, uncertain, verified, .. } = self.count;
        write!(f, "{asked} acquires: {granted} granted, {timed_out} timed out, {busy} busy, ")?;
        writeln!(f, "{uncertain} indeterminate, {verified} cleared up by verify")?;
        let Count { committed, skipped, handed_off, expired, .. } = self.count;
        write!(
            f,
            "{committed} entries ({skipped} skipped), {handed_off} hand-offs, {expired} leases ran out; "
        )?;
        let Count { faults, offices, snapshots, replaced, .. } = self.count;
        write!(f, "{faults} faults, {offices} offices, {snapshots} snapshots, {replaced} voters replaced")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.outcome.trace {
            writeln!(f, "  {line}")?;
        }
        if let Some(Broken { rule, text }) = &self.outcome.broken {
            writeln!(f, "seed {} breaks the rule \"{rule}\": {text}", self.seed)?;
        }
        write!(f, "again: cargo run -p ticketing-simulation -- --seed {}", self.seed)?;
        match self.mutant {
            Some(mutant) => write!(f, " --mutant {mutant}"),
            None => Ok(()),
        }
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.granted += other.granted;
        self.timed_out += other.timed_out;
        self.busy += other.busy;
        self.uncertain += other.uncertain;
        self.verified += other.verified;
        self.expired += other.expired;
        self.handed_off += other.handed_off;
        self.committed += other.committed;
        self.skipped += other.skipped;
        self.offices += other.offices;
        self.snapshots += other.snapshots;
        self.replaced += other.replaced;
        self.faults += other.faults;
    }
}
