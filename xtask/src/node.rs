//! The package for Node: built, and tested by Node.

use std::env::{self, consts::DLL_PREFIX, consts::DLL_SUFFIX};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::cargo;
use crate::report::Report;

/// The oldest Node that the package supports.
const OLDEST: (u32, u32) = (20, 9);

/// With it the addon has mistakes that a test puts in; so it is built once more.
const FAULTS: &str = "ticketing-node/seeded-faults";

/// Builds the addon and runs the package's own tests, where there is a Node.
pub(crate) fn test(report: &mut Report) {
    match missing() {
        Some(why) => report.skip("node", &why),
        None => {
            report.step("node", run);
        }
    }
}

/// What the step needs and is not there.
fn missing() -> Option<String> {
    let wanted = format!("needs Node {}.{} or newer, with npm", OLDEST.0, OLDEST.1);
    let Some(node) = version("node") else { return Some(format!("{wanted}: there is no node")) };
    if numbers(&node) < Some(OLDEST) {
        return Some(format!("{wanted}: this one is {node}"));
    }
    version("npm").is_none().then(|| format!("{wanted}: there is no npm"))
}

fn version(tool: &str) -> Option<String> {
    let output = Command::new(tool).arg("--version").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Of `v20.9.0`: 20 and 9.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.trim_start_matches('v').split_once('.')?;
    let (minor, _) = rest.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn run() -> Result<()> {
    let package = cargo::root().join("bindings/node");
    let built = env::current_exe()?.parent().context("this program lies in a folder")?.to_owned();
    cargo::run(npm(&["ci", "--no-audit", "--no-fund"]).current_dir(&package))?;
    let faulty = built.join("ticketing-node-with-faults.node");
    fs::copy(addon(&["--features", FAULTS])?, &faulty)?;
    let mut tests = Command::new("node");
    tests.args(["scripts/test.mjs"]).arg(addon(&[])?).current_dir(&package).stdin(Stdio::null());
    cargo::run(tests.env("TICKETING_BUILT", &built).env("TICKETING_FAULTY_ADDON", &faulty))
}

/// Builds the addon, as part of the whole workspace, so that its dependencies keep
/// the features with which everything else was built.
fn addon(features: &[&str]) -> Result<PathBuf> {
    cargo::run(cargo::command(["build", "--quiet", "--workspace", "--lib"]).args(features))?;
    Ok(env::current_exe()?.with_file_name(format!("{DLL_PREFIX}ticketing_node{DLL_SUFFIX}")))
}

fn npm(args: &[&str]) -> Command {
    // There it is a script, which only its full name starts.
    let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    command.args(args).stdin(Stdio::null());
    command
}
