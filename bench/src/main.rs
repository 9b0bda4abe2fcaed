//! Benchmarks of Ticketing beside a bare echo server as the floor.

mod beside;
mod cluster;
mod cores;
mod figures;
mod floor;
mod plan;
mod process;
mod raw;
mod report;
mod scale;
mod stage;

use std::io::{Write as _, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime;

use crate::beside::Workload;
use crate::plan::Plan;
use crate::report::{Machine, Report};
use crate::stage::Stage;

/// Measures Ticketing beside a bare echo server on the same machine, in the same run.
///
/// Ends with 1 if a target was missed. bench/README.md says what the figures mean.
#[derive(Debug, Parser)]
#[command(name = "ticketing-bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Args, Debug)]
struct Run {
    /// Small counts: shows in seconds that everything runs and answers right. Targets are not judged.
    #[arg(long)]
    quick: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Measure only this; may be repeated.
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,

    /// How often the sides that are compared take turns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Cycles of one turn of a workload that is compared with the floor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cycles: Option<u64>,

    /// Let idle cores halt. Waking one up may then take longer than all the rest together.
    #[arg(long)]
    let_sleep: bool,
}

/// Processes that a run starts for itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// The echo server; prints where it listens.
    FloorServer,
    /// The echo client; prints what it measured.
    FloorClient {
        /// Where the echo server listens.
        address: SocketAddr,
        /// Tasks that exchange at the same time.
        #[arg(long)]
        tasks: u64,
        /// Cycles of all tasks together.
        #[arg(long)]
        cycles: u64,
    },
    /// Keeps a core busy.
    #[command(hide = true)]
    Spin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Contended,
    OwnKey,
    Sequential,
    Held,
    Waiters,
    Idle,
    Flood,
    Cluster,
    Durable,
}

impl Part {
    fn steps(self, plan: &Plan) -> u32 {
        match self {
            Self::Contended | Self::OwnKey | Self::Sequential | Self::Flood => plan.rounds,
            Self::Held => 1 + plan.rounds,
            Self::Waiters => 4,
            Self::Idle => 1,
            Self::Cluster => plan.rounds,
            Self::Durable => plan.rounds.min(5),
        }
    }

    fn measure(self, stage: &Stage, report: &mut Report) -> Result<()> {
        let compare = |workload| beside::measure(workload, stage);
        match self {
            Self::Contended => report.comparisons.push(compare(Workload::Contended)?),
            Self::OwnKey => report.comparisons.push(compare(Workload::OwnKey)?),
            Self::Sequential => report.comparisons.push(compare(Workload::Sequential)?),
            Self::Held => report.findings.extend(scale::held::measure(stage)?),
            Self::Waiters => report.findings.extend(scale::waiters::measure(stage)?),
            Self::Idle => report.findings.extend(scale::idle::measure(stage)?),
            Self::Flood => report.findings.extend(scale::flood::measure(stage)?),
            Self::Cluster => report.findings.extend(cluster::measure(stage)?),
            Self::Durable => report.findings.extend(cluster::measure_durable(stage)?),
        }
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let Cli { run, role } = Cli::parse();
    match role {
        None => measure(&run),
        Some(Role::FloorServer) => floor_server().map(|()| ExitCode::SUCCESS),
        Some(Role::FloorClient { address, tasks, cycles }) => {
            let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
            let figures = runtime.block_on(floor::client::run(address, tasks, cycles))?;
            writeln!(stdout(), "{}", serde_json::to_string(&figures)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Spin) => {
            process::end_with_parent();
            loop {
                std::hint::spin_loop();
            }
        }
    }
}

fn measure(run: &Run) -> Result<ExitCode> {
    ensure!(!cfg!(debug_assertions), "a debug build measures nothing: add --release");
    let mut plan = if run.quick { Plan::QUICK } else { Plan::FULL };
    plan.rounds = run.rounds.unwrap_or(plan.rounds);
    if let Some(cycles) = run.cycles {
        (plan.cycles, plan.sequential_cycles) = (cycles, cycles);
    }
    allow_connections(u64::from(plan.connections))?;
    let parts = if run.only.is_empty() { Part::value_variants() } else { &run.only };
    let mut report = Report::new(Machine::this(), plan.judged, !run.let_sleep);
    let steps = parts.iter().map(|part| part.steps(&plan)).sum();
    let stage = Stage::set(plan, steps, !run.let_sleep)?;
    for part in parts {
        part.measure(&stage, &mut report)?;
    }
    drop(stage);
    if run.json {
        writeln!(stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(stdout(), "{report}")?;
    }
    Ok(if report.missed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn floor_server() -> Result<()> {
    process::end_with_parent();
    // One thread: with two, a request now and then waits for the other one to wake up.
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        writeln!(stdout(), "{}", listener.local_addr()?)?;
        Ok(floor::server::serve(listener).await?)
    })
}

/// Raises the limit of open files, which the servers that are started inherit.
fn allow_connections(connections: u64) -> Result<()> {
    const BESIDE_CONNECTIONS: u64 = 200;
    let needed = connections + BESIDE_CONNECTIONS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{needed} open files are needed, and this system allows fewer (ulimit -Hn)"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit })
        .context("raising the limit of open files")
}
