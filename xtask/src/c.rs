//! The C library: its header, and its tests, which compile and run programs.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::cargo;
use crate::report::Report;

const HEADER: &str = "bindings/c/include/ticketing.h";

/// What the tests need, and the Debian package of each.
const TOOLS: &[(&str, &str)] =
    &[("gcc", "gcc"), ("g++", "g++"), ("make", "make"), ("nm", "binutils"), ("pkg-config", "pkg-config"), ("valgrind", "valgrind")];

/// The tests in C, under valgrind and `AddressSanitizer`, and the scenario table.
pub(crate) fn test(report: &mut Report) {
    for (tool, package) in TOOLS {
        if !has_or_installs(tool, package) {
            return report.skip("c", &format!("{tool} is not installed (apt-get install {package})"));
        }
    }
    if !has_or_installs("cmake", "cmake") {
        report.skip("c with cmake", "cmake is not installed (apt-get install cmake)");
    }
    report.step("c", || {
        compare_header()?;
        // Of the whole workspace, so that dependencies keep the features with
        // which everything else was built.
        cargo::run(&mut cargo::command(["build", "--quiet", "--workspace", "--lib"]))?;
        let libs = std::env::current_exe()?.parent().context("xtask has no folder")?.to_owned();
        let mut tests = cargo::command(["test", "--workspace", "--test", "c"]);
        cargo::run(tests.env("TICKETING_C_LIBS", libs))
    });
}

fn has_or_installs(tool: &str, package: &str) -> bool {
    if has(tool) {
        return true;
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--quiet", package]).stdin(Stdio::null());
    install.status().is_ok_and(|status| status.success()) && has(tool)
}

fn has(tool: &str) -> bool {
    let mut probe = Command::new(tool);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

fn print_header() -> Result<Vec<u8>> {
    let example = ["run", "--quiet", "--package", "ticketing-c", "--example", "header"];
    cargo::output(&mut cargo::command(example))
}

/// Makes the header anew.
pub(crate) fn write_header() -> Result<()> {
    fs::write(cargo::root().join(HEADER), print_header()?).with_context(|| format!("{HEADER} cannot be written"))?;
    println!("{HEADER}");
    Ok(())
}

fn compare_header() -> Result<()> {
    let committed = fs::read(cargo::root().join(HEADER)).with_context(|| format!("{HEADER} cannot be read"))?;
    ensure!(committed == print_header()?, "stale: {HEADER}; `cargo xtask docs` makes it anew");
    Ok(())
}
