//! Runs simulations until enough time was simulated, or runs one seed again.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ticketing_simulation::{Campaign, Failure, Mutant, campaign, replay};

/// Simulates clusters under faults: the real engine, replica and client session
/// over an abstract log and network.
#[derive(Debug, Parser)]
struct Options {
    /// How many cluster-hours to simulate.
    #[arg(long, default_value_t = 1_000.0)]
    hours: f64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// With a seed: show so many lines of what happened before the end.
    #[arg(long, default_value_t = 50)]
    lines: usize,
    /// Put a fault in, to see it caught.
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Runs beside each other; by default one on each processor.
    #[arg(long)]
    threads: Option<usize>,
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
fn main() -> ExitCode {
    let options = Options::parse();
    let failure = match options.seed {
        Some(seed) => {
            let outcome = replay(seed, options.mutant, options.lines);
            println!("digest {:016x}, {} events: {:?}", outcome.digest, outcome.events, outcome.count);
            outcome.broken.is_some().then_some(Failure { seed, mutant: options.mutant, outcome })
        }
        None => {
            let threads =
                options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
            let simulated = Duration::from_secs_f64(options.hours.max(0.0) * 3600.0);
            let all: Campaign =
                campaign(options.first, threads.unwrap_or(1), simulated, Duration::MAX, options.mutant);
            println!("{all}");
            all.failure
        }
    };
    match failure {
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
