//! Plays scripted servers to the Ticketing client of any language.
//!
//! It has the client, through a small runner in its language, make the calls of
//! a scenario, plays the other end of the wire byte by byte, and judges both:
//! what came of the calls, and what the client sent. README.md beside this
//! crate says how to write a runner.

mod certificates;
mod client;
mod compare;
mod connection;
mod expand;
mod frames;
mod node;
mod play;
mod report;
mod runner;
mod scenario;
mod stage;
mod table;
mod wire;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::play::Verdict;
use crate::stage::Stage;

/// Plays scripted servers to the Ticketing client of any language.
#[derive(Parser)]
#[command(name = "ticketing-scripted-server", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check every file of the table and print the name of each case.
    List {
        /// Folder with the scenario files.
        table: PathBuf,
    },
    /// Play one case with the runner at standard input and output.
    Play {
        /// Folder with the scenario files.
        table: PathBuf,
        /// Name of the case, as `list` prints it.
        case: String,
    },
    /// Print the results of several runners side by side.
    Report {
        /// Files with a line of JSON for each case; a file's name is its language.
        results: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to be told to if even this fails.
            let _ = writeln!(io::stderr(), "ticketing-scripted-server: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { table } => {
            let mut out = io::stdout().lock();
            for case in table::load(&table)? {
                writeln!(out, "{}", case.name)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Play { table, case } => {
            let case = table::find(&table, &case)?;
            let stage = Arc::new(Stage::new());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let verdict = runtime.block_on(play::play(&case, &stage))?;
            runner::say(&verdict.line(&stage))?;
            Ok(if matches!(verdict, Verdict::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Command::Report { results } => {
            write!(io::stdout().lock(), "{}", report::table(&results)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
