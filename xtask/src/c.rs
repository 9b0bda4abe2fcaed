//! The C library: its header, and its tests, which compile and run programs.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::cargo;
use crate::report::Report;
use crate::tools::is_there;

const HEADER: &str = "bindings/c/include/ticketing.h";

/// What the tests need; `tools` installs it where it may.
const TOOLS: [&str; 7] = ["gcc", "g++", "make", "nm", "pkg-config", "valgrind", "cmake"];

/// The tests in C, under valgrind and `AddressSanitizer`, and the scenario table.
pub(crate) fn test(report: &mut Report) {
    let missing: Vec<_> = TOOLS.into_iter().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        return report.skip("c", &format!("not installed: {}", missing.join(", ")));
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

fn print_header() -> Result<Vec<u8>> {
    let example = ["run", "--quiet", "--package", "ticketing-c", "--example", "header"];
    cargo::output(&mut cargo::command(example))
}

/// Makes the header anew.
pub(crate) fn write_header() -> Result<()> {
    fs::write(cargo::root().join(HEADER), print_header()?)
        .with_context(|| format!("{HEADER} cannot be written"))?;
    println!("{HEADER}");
    Ok(())
}

fn compare_header() -> Result<()> {
    let committed =
        fs::read(cargo::root().join(HEADER)).with_context(|| format!("{HEADER} cannot be read"))?;
    ensure!(committed == print_header()?, "stale: {HEADER}; `cargo xtask docs` makes it anew");
    Ok(())
}
