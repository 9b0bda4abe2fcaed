//! Other processes of this program, and the product's command line.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, thread};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;
use serde::de::DeserializeOwned;

use crate::cores::Cores;

/// A process that is killed when this is dropped. It also ends by itself when
/// its standard input does, so it outlives nobody.
pub(crate) struct Helper(Child);

impl Helper {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the echo server; returns where it listens.
pub(crate) fn floor_server() -> Result<(Helper, SocketAddr)> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("floor-server").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut helper = Helper(command.spawn().context("starting the floor server")?);
    let stdout = helper.0.stdout.take().context("its output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.trim().parse().with_context(|| format!("the floor server said {line:?}"))?;
    Ok((helper, address))
}

/// Keeps every core from halting: a spinner on each, which gives way to anything else.
///
/// # Errors
/// Without `chrt` (Linux, package util-linux).
pub(crate) fn keep_awake(cores: &Cores) -> Result<Vec<Helper>> {
    let program = env::current_exe()?;
    let spin = |&core: &usize| {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(&program).arg("spin").stdin(Stdio::piped());
        let helper =
            Helper(command.spawn().context("starting chrt, which is needed to keep the cores awake")?);
        Cores::tie(helper.pid(), core)?;
        Ok(helper)
    };
    cores.all().iter().map(spin).collect()
}

/// Ends this process when its standard input ends.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        // Nobody ever writes there.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

/// Runs a program to its end and reads the one JSON value that it prints.
pub(crate) fn json<T: DeserializeOwned>(program: &Path, args: &[&str]) -> Result<T> {
    let shown = || format!("{} {}", program.display(), args.join(" "));
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(shown)?;
    ensure!(output.status.success(), "{} failed: {}", shown(), output.status);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} printed {}", shown(), String::from_utf8_lossy(&output.stdout)))
}
