//! The Python package: built as users get it, installed, and tested from there.

use std::env::{self, consts::EXE_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Error, Result, bail};

use crate::cargo;
use crate::report::Report;

const PACKAGE: &str = "bindings/python";

/// Builds the wheel, and runs every test of it, if there is a Python for that.
pub(crate) fn step(report: &mut Report) {
    match interpreter() {
        Ok(python) => {
            report.step("python", || test_with(&python));
        }
        Err(why) => report.skip("python", &why),
    }
}

/// The same, where it must be possible.
///
/// # Errors
/// If there is no such Python, or a test fails.
pub(crate) fn test() -> Result<()> {
    test_with(&interpreter().map_err(Error::msg)?)
}

/// A Python of 3.10 or newer that can make environments.
fn interpreter() -> Result<PathBuf, String> {
    const NEEDS: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
    let names = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"];
    for name in names {
        let mut probe = Command::new(name);
        probe.args(["-c", NEEDS]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            return Ok(name.into());
        }
    }
    Err("there is no Python 3.10 or newer with the module venv (Debian: apt install python3-venv)".to_owned())
}

fn test_with(python: &Path) -> Result<()> {
    let bin = env::current_exe()?.parent().context("this program lies nowhere")?.to_owned();
    let place = bin.with_file_name("python");
    let tools = place.join("venv").join("bin");
    let run = |program: &str| {
        let mut command = Command::new(tools.join(format!("{program}{EXE_SUFFIX}")));
        command.current_dir(cargo::root().join(PACKAGE)).stdin(Stdio::null());
        command
    };
    let pip = || {
        let mut pip = run("python");
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]);
        pip
    };
    if !tools.join("python").exists() {
        cargo::run(Command::new(python).args(["-m", "venv"]).arg(place.join("venv")).stdin(Stdio::null()))?;
    }
    cargo::run(pip().args(["--requirement", "requirements-dev.txt"]))?;

    let wheels = place.join("wheels");
    if wheels.exists() {
        // One of an earlier version would be found, too.
        fs::remove_dir_all(&wheels)?;
    }
    let mut build = run("maturin");
    build.args(["build", "--quiet", "--locked", "--profile", "dev", "--out"]).arg(&wheels);
    cargo::run(build.env("CARGO_TARGET_DIR", bin.with_file_name("")))?;
    let wheel = only_file(&wheels)?;
    cargo::run(pip().args(["--no-index", "--no-deps", "--force-reinstall"]).arg(&wheel))?;

    let mut tests = run("python");
    tests.args(["-m", "pytest", "--quiet"]);
    cargo::run(tests.env("TICKETING_BIN_DIR", &bin).env("TICKETING_WHEEL", &wheel))
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    match files.as_slice() {
        [file] => Ok(file.clone()),
        _ => bail!("{} holds {} files in place of one wheel", folder.display(), files.len()),
    }
}
