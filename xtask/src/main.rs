//! Every chore of the workspace, with nothing to install but Rust.

#![allow(clippy::print_stdout, reason = "a chore tells what it does")]

mod c;
mod cargo;
mod docs;
mod fuzz;
mod node;
mod python;
mod report;
mod test;
mod tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The chores of the Ticketing workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check everything: format, lints, build, tests, documentation, generated files.
    ///
    /// Ends with a table of what passed, failed or was skipped (and why), and a
    /// last line "N passed, M failed" that counts the steps.
    Test {
        /// Count a skipped step as failed.
        #[arg(long)]
        strict: bool,
    },
    /// Measure: `cargo xtask bench --help` tells what.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the generated pages of docs/ and ticketing.h anew.
    Docs,
    /// Build and test the Python package alone (after `cargo build --workspace --bins`).
    Python,
    /// Run the fuzz targets of the wire protocol (needs cargo-fuzz).
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 60)]
        secs: u32,
    },
}

fn main() -> Result<ExitCode> {
    match Cli::parse().chore {
        Chore::Test { strict } => return Ok(test::run(strict)),
        Chore::Bench { args } => {
            let bench = ["run", "--release", "--package", "ticketing-bench", "--"];
            cargo::run(cargo::command(bench).args(args))?;
        }
        Chore::Python => python::test()?,
        Chore::Docs => {
            docs::write()?;
            c::write_header()?;
        }
        Chore::Fuzz { secs } => fuzz::run(secs)?,
    }
    Ok(ExitCode::SUCCESS)
}
