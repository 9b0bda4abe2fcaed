//! The `ticketing-server` process.

mod log;
mod operate;
mod process;

use std::io::Write as _;
use std::process::ExitCode;

use ticketing_server::config::{Invocation, Operation, invocation};
use ticketing_server::{Config, Server};
use tokio::runtime::{Builder, Runtime};
use tracing::info;

use process::{Signal, Signals};

/// It gives the memory of a crowd that has gone back to the system; the C library's
/// allocator keeps whatever lies below a block that is still in use.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A setting that is wrong; the same code as for a flag that is.
const WRONG_SETTING: u8 = 2;

fn main() -> ExitCode {
    process::keep_files_private();
    let config = match invocation() {
        Ok(Invocation::Serve(config)) => config,
        Ok(Invocation::Operate(operation)) => return operate(operation),
        Ok(Invocation::Print(page)) => return print(&page),
        Err(error) => return refuse(&error.to_string(), WRONG_SETTING),
    };
    let log = match log::init(config.log_format, config.log_level) {
        Ok(log) => log,
        Err(error) => return refuse(&format!("no thread could be started for the log: {error}"), 1),
    };
    let outcome = run(*config);
    if let Err(problem) = &outcome {
        log.line(&format!("error: {problem}"));
    }
    log.flush();
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(config: Config) -> Result<(), String> {
    process::raise_open_files(config.limits.connections);
    let runtime =
        runtime(&config).map_err(|error| format!("the threads that serve could not be started: {error}"))?;
    let outcome = runtime.block_on(serve(config));
    // A write to a disk that hangs holds nobody up.
    runtime.shutdown_background();
    outcome
}

fn runtime(config: &Config) -> std::io::Result<Runtime> {
    let threads = config.threads.get().into();
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).max_blocking_threads(4).enable_all().build()
}

async fn serve(config: Config) -> Result<(), String> {
    // Before anybody can know that the server runs.
    let mut signals = Signals::catch().map_err(|error| format!("signals cannot be caught: {error}"))?;
    let mut starting = std::pin::pin!(Server::start(config));
    let mut reload = false;
    let mut server = loop {
        tokio::select! {
            server = &mut starting => break server.map_err(|error| error.to_string())?,
            signal = signals.next() => match signal {
                Signal::Reload => reload = true,
                Signal::Stop => return Ok(()),
            },
        }
    };
    if reload {
        server.reload();
    }
    loop {
        let signal = tokio::select! {
            signal = signals.next() => signal,
            () = server.failed() => return Err("the server failed; see the log".to_owned()),
        };
        match signal {
            Signal::Reload => server.reload(),
            Signal::Stop => break,
        }
    }
    info!("stopping: new acquires are refused, releases are served for a moment (a second signal ends that)");
    server.shutdown(async move { while signals.next().await != Signal::Stop {} }).await;
    Ok(())
}

fn operate(operation: Operation) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error.to_string(), 1),
    };
    let outcome = runtime.block_on(operate::run(operation));
    // A file system that hangs holds nobody up.
    runtime.shutdown_background();
    match outcome {
        Ok(text) => print(&text),
        Err(problem) => refuse(&problem, 1),
    }
}

fn print(page: &str) -> ExitCode {
    match std::io::stdout().write_all(page.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn refuse(problem: &str, code: u8) -> ExitCode {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "error: {problem}");
    ExitCode::from(code)
}
