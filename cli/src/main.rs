//! `ticketing`: the command line of the lock service.
//!
//! `args` says what can be asked for; one module for each command does it;
//! `exit` and `failure` say how it ended.

mod acquire;
mod args;
mod bench;
mod connect;
mod documents;
mod duration;
mod exit;
mod failure;
mod grant;
mod group;
mod guard;
mod lock;
mod output;
mod ping;
mod signals;
mod supervise;
mod terminal;

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::args::{Acquire, Cli, Command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Format;

fn main() -> ExitCode {
    // Between processes of this program only, so no part of the command line.
    if std::env::args_os().nth(1).is_some_and(|first| first == guard::ARGUMENT) {
        guard::run();
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no error.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match printed {
                _ if error.use_stderr() => Exit::Usage.code().into(),
                Err(problem) if problem.kind() != ErrorKind::BrokenPipe => Exit::System.code().into(),
                _ => ExitCode::SUCCESS,
            };
        }
    };
    log_to_stderr(cli.output.verbose);
    run(&cli).into()
}

/// Runs the command; its exit code.
fn run(cli: &Cli) -> u8 {
    let format = match &cli.command {
        // Of these the standard output is the command's, or takes a token and nothing else;
        // so JSON must be asked for.
        Command::Lock(_) | Command::Acquire(Acquire { token_only: true, .. }) => {
            Format::choose(cli.output.json, true)
        }
        Command::Acquire(_)
        | Command::Release(_)
        | Command::Ping(_)
        | Command::Bench(_)
        | Command::Completions(_)
        | Command::Man(_) => Format::choose(cli.output.json, cli.output.human),
    };
    let result = match &cli.command {
        Command::Lock(lock) => return lock::run(lock, &cli.connection, format),
        Command::Acquire(acquire) => acquire::acquire(acquire, &cli.connection, format),
        Command::Release(release) => acquire::release(release, &cli.connection, format),
        Command::Ping(ping) => ping::run(ping, &cli.connection, format),
        Command::Bench(bench) => bench::run(bench, &cli.connection, format),
        Command::Completions(completions) => documents::completions(completions),
        Command::Man(man) => documents::man(man),
    };
    result.unwrap_or_else(|failure| {
        failure.report(format);
        failure.code
    })
}

/// A runtime on this thread alone: one caller needs no more.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::system("no runtime could be started", error))
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => "debug",
        _ => "trace",
    };
    tracing_subscriber::fmt()
        // It would tell them on the standard error, and panic if it cannot.
        .log_internal_errors(false)
        .with_env_filter(EnvFilter::new(level))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
