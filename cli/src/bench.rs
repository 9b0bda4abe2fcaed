//! `ticketing bench`: how fast locks move, and whether they exclude.

mod workload;

use std::time::Duration;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::args::{Bench, Connection, Workload};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Format};
use workload::{Outcome, Plan};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// One run, as programs read it.
#[derive(Debug, Serialize)]
struct Report {
    workload: &'static str,
    tasks: usize,
    keys: usize,
    /// Cycles that were completed.
    cycles: u64,
    secs: f64,
    cycles_per_sec: f64,
    /// Of a whole cycle.
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Cycles that failed; the first failure ends the run.
    errors: u64,
    /// The first failure.
    error: Option<String>,
    /// Additions that were lost because two tasks were inside one lock: must be 0.
    violations: u64,
}

/// Runs a workload and prints the result; the exit code.
///
/// # Errors
/// If no server can be reached, or a cycle fails.
pub(crate) fn run(args: &Bench, connection: &Connection, format: Format) -> Result<u8, Failure> {
    let plan = plan(args);
    let runtime = crate::runtime()?;
    let mut outcome = runtime.block_on(async {
        let broker = connection.broker()?;
        broker.wait_ready(CONNECT_WITHIN).await?;
        let outcome = workload::run(&broker, plan).await;
        broker.close().await;
        outcome.map_err(|error| Failure::system("the measurement", error))
    })?;

    let failure = outcome.first_error.take().map(Failure::from);
    let report = Report {
        error: failure.as_ref().map(|failure| failure.message().to_owned()),
        ..Report::new(args.workload, plan, &outcome)
    };
    match format {
        Format::Human => output::result(&report.for_people()),
        Format::Json => output::result(&serde_json::json!(report).to_string()),
    }?;
    if report.violations > 0 {
        output::note(&format!("{} additions were lost: two tasks were inside one lock", report.violations));
        return Ok(Exit::Violation.code());
    }
    let Some(failure) = failure else { return Ok(0) };
    output::note(failure.message());
    Ok(failure.code)
}

fn plan(args: &Bench) -> Plan {
    let (tasks, keys, cycles) = match args.workload {
        Workload::Contended => (64, 32, 40_000),
        Workload::OwnKey => (64, args.tasks.unwrap_or(64), 40_000),
        Workload::Sequential => (1, 1, 5_000),
    };
    Plan {
        tasks: args.tasks.unwrap_or(tasks) as usize,
        keys: args.keys.unwrap_or(keys) as usize,
        cycles: args.cycles.unwrap_or(cycles),
    }
}

impl Report {
    #[allow(clippy::cast_precision_loss)] // Far fewer than 2^52 cycles and nanoseconds.
    fn new(workload: Workload, plan: Plan, outcome: &Outcome) -> Self {
        let secs = outcome.elapsed.as_secs_f64();
        let times = &outcome.times_ns;
        let micros = |nanos: u64| (nanos as f64 / 100.0).round() / 10.0;
        Self {
            workload: match workload {
                Workload::Contended => "contended",
                Workload::OwnKey => "own-key",
                Workload::Sequential => "sequential",
            },
            tasks: plan.tasks,
            keys: plan.keys,
            cycles: times.len(),
            secs,
            cycles_per_sec: times.len() as f64 / secs,
            p50_us: micros(times.value_at_quantile(0.50)),
            p99_us: micros(times.value_at_quantile(0.99)),
            max_us: micros(times.max()),
            errors: outcome.errors,
            error: None,
            violations: outcome.violations,
        }
    }

    fn for_people(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "workload", "tasks", "keys", "cycles", "time", "cycles/s", "p50", "p99", "max", "errors",
        ]);
        table.add_row([
            self.workload.to_owned(),
            self.tasks.to_string(),
            self.keys.to_string(),
            self.cycles.to_string(),
            format!("{:.2} s", self.secs),
            format!("{:.0}", self.cycles_per_sec),
            format!("{} µs", self.p50_us),
            format!("{} µs", self.p99_us),
            format!("{} µs", self.max_us),
            self.errors.to_string(),
        ]);
        table.to_string()
    }
}
