//! What became of each step.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The steps so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<(&'static str, Outcome, Duration)>,
}

impl Report {
    /// Does a step and notes how it ended; whether it passed.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> bool {
        println!("\n==> {name}");
        let start = Instant::now();
        let outcome = match work() {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let passed = matches!(outcome, Outcome::Passed);
        self.note(name, outcome, start.elapsed());
        passed
    }

    /// Notes a step that is not done.
    pub(crate) fn skip(&mut self, name: &'static str, reason: &str) {
        println!("\n==> {name}");
        self.note(name, Outcome::Skipped(reason.to_owned()), Duration::ZERO);
    }

    fn note(&mut self, name: &'static str, outcome: Outcome, took: Duration) {
        println!("    {} after {:.1} s", outcome.text(), took.as_secs_f64());
        self.steps.push((name, outcome, took));
    }

    /// Prints the table and the last line; whether nothing failed. A skipped
    /// step counts as failed if `strict`.
    pub(crate) fn finish(&self, strict: bool) -> bool {
        println!();
        for (name, outcome, took) in &self.steps {
            println!("{name:<20} {:>8.1} s  {}", took.as_secs_f64(), outcome.text());
        }
        let failed = |outcome: &Outcome| match outcome {
            Outcome::Passed => false,
            Outcome::Failed(_) => true,
            Outcome::Skipped(_) => strict,
        };
        let passed = self.steps.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Passed)).count();
        let failed = self.steps.iter().filter(|(_, outcome, _)| failed(outcome)).count();
        println!("\n{passed} passed, {failed} failed");
        failed == 0
    }
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Failed(why) => format!("FAILED: {why}"),
            Self::Skipped(why) => format!("skipped: {why}"),
        }
    }
}
