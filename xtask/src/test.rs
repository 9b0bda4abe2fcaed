//! Everything that must hold before a change lands.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::report::Report;
use crate::{c, cargo, docs, node, python, tools};

/// Runs every step, also after one failed; the exit code.
pub(crate) fn run(strict: bool) -> ExitCode {
    let mut report = Report::default();
    format(&mut report);
    lints(&mut report);
    tools::provide(&mut report);
    if report.step("build", || {
        // What tests start must stand beside them.
        cargo::run(&mut cargo::command(["build", "--workspace", "--bins", "--examples"]))
    }) {
        tests(&mut report);
        c::test(&mut report);
        report.step("simulation", simulation);
        report.step("seeded faults", seeded_faults);
        report.step("doc tests", || cargo::run(&mut cargo::command(["test", "--workspace", "--doc"])));
        report.step("generated files", docs::compare);
        node::test(&mut report);
        python::step(&mut report);
    } else {
        for name in
            ["tests", "c", "simulation", "seeded faults", "doc tests", "generated files", "node", "python"]
        {
            report.skip(name, "the build failed");
        }
    }
    report.step("documentation", || {
        let mut doc = cargo::command(["doc", "--workspace", "--no-deps"]);
        cargo::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    if report.finish(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Mistakes that tests can put in. With them the engine is another one, so it is built
/// again, for those tests alone.
const SEEDED: &str = "ticketing-simulation/seeded-faults,ticketing-cluster/seeded-faults";

/// A thousand cluster-hours under faults. What breaks a rule is told with its seed.
fn simulation() -> Result<()> {
    let mut simulation = Command::new(cargo::built("ticketing-simulation")?);
    cargo::run(simulation.args(["--hours", "1000"]).stdin(Stdio::null()))
}

fn seeded_faults() -> Result<()> {
    let test = ["test", "--workspace", "--features", SEEDED, "--test", "seeded"];
    cargo::run(cargo::command(test).args(["--", "--nocapture"]))
}

fn format(report: &mut Report) {
    if cargo::has_component("fmt", "rustfmt") {
        report.step("format", || cargo::run(&mut cargo::command(["fmt", "--all", "--check"])));
    } else {
        report.skip("format", "rustfmt is not installed (rustup component add rustfmt)");
    }
}

fn lints(report: &mut Report) {
    if cargo::has_component("clippy", "clippy") {
        let clippy = ["clippy", "--workspace", "--all-targets", "--features", SEEDED, "--", "-D", "warnings"];
        report.step("lints", || cargo::run(&mut cargo::command(clippy)));
    } else {
        report.skip("lints", "clippy is not installed (rustup component add clippy)");
    }
}

fn tests(report: &mut Report) {
    // The same tests either way; nextest is quicker and tells more.
    let tests: &[&str] = if cargo::has("nextest") {
        &["nextest", "run", "--workspace", "--no-fail-fast"]
    } else {
        &["test", "--workspace", "--all-targets", "--no-fail-fast"]
    };
    report.step("tests", || cargo::run(&mut cargo::command(tests)));
}
