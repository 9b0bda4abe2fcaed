//! What is measured, and the check that it was a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::{CreationError, Histogram};
use indicatif::{ProgressBar, ProgressStyle};
use ticketing::{TicketBroker, TicketError};
use tokio::task::JoinSet;

const WAIT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(60);

/// The slowest cycle that the histogram tells apart: longer than wait and release can take.
const SLOWEST_NS: u64 = 60_000_000_000;

/// How much is done by how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) tasks: usize,
    pub(super) keys: usize,
    pub(super) cycles: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) elapsed: Duration,
    /// One entry for each completed cycle.
    pub(super) times_ns: Histogram<u64>,
    pub(super) errors: u64,
    pub(super) first_error: Option<TicketError>,
    pub(super) violations: u64,
}

/// What the tasks share.
#[derive(Debug)]
struct Course {
    broker: TicketBroker,
    plan: Plan,
    names: Vec<String>,
    counters: Vec<Counter>,
    /// The next cycle that nobody has taken.
    next: AtomicU64,
    /// How long each completed cycle took.
    times_ns: Mutex<Histogram<u64>>,
    progress: ProgressBar,
}

/// Loses additions as soon as two tasks add at once: that is its purpose.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

/// In one of so many visits of a key, others get to run between reading and
/// writing. A lock that does not exclude shows all the same, within moments, and
/// what is measured are locks rather than the pauses inside them.
const VISITS_A_PAUSE: u64 = 16;

impl Counter {
    async fn add_one(&self, pause: bool) {
        let seen = self.0.load(Ordering::Relaxed);
        if pause {
            tokio::task::yield_now().await;
        }
        self.0.store(seen + 1, Ordering::Relaxed);
    }
}

/// Runs all cycles, or those up to the first failure.
///
/// # Errors
/// If there is no memory to measure in.
pub(super) async fn run(broker: &TicketBroker, plan: Plan) -> Result<Outcome, CreationError> {
    let course = Arc::new(Course {
        broker: broker.clone(),
        plan,
        // Two runs at once shall not wait for each other.
        names: (0..plan.keys).map(|number| format!("bench:{}:{number}", std::process::id())).collect(),
        counters: (0..plan.keys).map(|_| Counter::default()).collect(),
        next: AtomicU64::new(0),
        times_ns: Mutex::new(Histogram::new_with_max(SLOWEST_NS, 3)?),
        progress: progress_bar(plan.cycles),
    });
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..plan.tasks {
        tasks.spawn(cycles(Arc::clone(&course)));
    }
    let (mut errors, mut first_error) = (0, None);
    while let Some(task) = tasks.join_next().await {
        if let Ok(Err(error)) = task {
            errors += 1;
            first_error.get_or_insert(error);
            tasks.abort_all();
        }
    }
    let elapsed = start.elapsed();

    course.progress.finish_and_clear();
    let times_ns = course.times_ns().clone();
    let counted: u64 = course.counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
    // A cycle that failed at its release has added too.
    let violations = times_ns.len().saturating_sub(counted);
    Ok(Outcome { elapsed, times_ns, errors, first_error, violations })
}

/// One task: takes cycles as long as there are any.
async fn cycles(course: Arc<Course>) -> Result<(), TicketError> {
    loop {
        let number = course.next.fetch_add(1, Ordering::Relaxed);
        if number >= course.plan.cycles {
            return Ok(());
        }
        let start = Instant::now();
        course.cycle(number).await?;
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        course.times_ns().saturating_record(nanos);
        course.progress.inc(1);
    }
}

impl Course {
    async fn cycle(&self, number: u64) -> Result<(), TicketError> {
        // Cycles under way at one time are neighbours, so they spread over all keys evenly.
        let keys = self.plan.keys as u64;
        let key = usize::try_from(number % keys).unwrap_or(0);
        let ticket = self.broker.acquire(&self.names[key], WAIT, LEASE).await?;
        self.counters[key].add_one((number / keys).is_multiple_of(VISITS_A_PAUSE)).await;
        ticket.release().await
    }

    fn times_ns(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.times_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shown on a terminal only.
fn progress_bar(cycles: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} cycles, {per_sec}");
    let bar = ProgressBar::new(cycles);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check is worth something only if it sees what happens without a lock.
    #[tokio::test]
    async fn without_a_lock_the_counter_loses_additions() {
        let counter = Arc::new(Counter::default());
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move { counter.add_one(true).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(counter.0.load(Ordering::Relaxed) < 8);
    }
}
