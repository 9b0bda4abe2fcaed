//! What a run found, for people and for programs.

use std::fmt;
use std::fs;
use std::thread;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::beside::Comparison;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Told for orientation.
    None,
}

/// One figure and its target.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) target: Target,
}

impl Finding {
    pub(crate) const fn new(what: &'static str, value: f64, unit: &'static str, target: Target) -> Self {
        Self { what, value, unit, target }
    }

    fn is_missed(&self) -> bool {
        // A figure that is no number misses.
        self.value.is_nan()
            || match self.target {
                Target::AtLeast(least) => self.value < least,
                Target::AtMost(most) => self.value > most,
                Target::None => false,
            }
    }

    fn target(&self) -> String {
        match self.target {
            Target::AtLeast(least) => format!("≥ {} {}", Number(least), self.unit),
            Target::AtMost(most) => format!("≤ {} {}", Number(most), self.unit),
            Target::None => String::new(),
        }
    }

    fn verdict(&self, judged: bool) -> &'static str {
        match (self.target, judged) {
            (Target::None, _) => "",
            (_, false) => "not judged",
            (_, true) if self.is_missed() => "MISS",
            (_, true) => "ok",
        }
    }
}

/// Everything that one run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Whether the counts were those for which the targets are meant.
    pub(crate) judged: bool,
    /// Whether spinners kept the cores from halting.
    pub(crate) kept_awake: bool,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) const fn new(machine: Machine, judged: bool, kept_awake: bool) -> Self {
        Self { machine, judged, kept_awake, comparisons: Vec::new(), findings: Vec::new() }
    }

    /// How many targets were missed; none in a run that is not judged.
    pub(crate) fn missed(&self) -> usize {
        let comparisons = self.comparisons.iter().map(|comparison| &comparison.verdict);
        comparisons.chain(&self.findings).filter(|finding| self.judged && finding.is_missed()).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}{}", self.machine, if self.kept_awake { "; cores kept awake" } else { "" })?;
        if !self.comparisons.is_empty() {
            let mut table = table(&[
                "workload",
                "cycles/s",
                "floor",
                "p50/p99 µs",
                "floor",
                "against the floor",
                "target",
                "",
            ]);
            for Comparison { workload, product, floor, verdict } in &self.comparisons {
                table.add_row([
                    (*workload).to_owned(),
                    Number(product.cycles_per_sec).to_string(),
                    Number(floor.cycles_per_sec).to_string(),
                    format!("{:.0} / {:.0}", product.p50_us, product.p99_us),
                    format!("{:.0} / {:.0}", floor.p50_us, floor.p99_us),
                    format!("{} {} {}", Number(verdict.value), verdict.unit, verdict.what),
                    verdict.target(),
                    verdict.verdict(self.judged).to_owned(),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        if !self.findings.is_empty() {
            let mut table = table(&["server", "measured", "target", ""]);
            for finding in &self.findings {
                table.add_row([
                    finding.what.to_owned(),
                    format!("{} {}", Number(finding.value), finding.unit),
                    finding.target(),
                    finding.verdict(self.judged).to_owned(),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        Ok(())
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}

/// Three digits of a small number, all of a large one.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.0.abs() {
            0.0..10.0 => 2,
            10.0..100.0 => 1,
            _ => 0,
        };
        let text = format!("{:.decimals$}", self.0);
        let whole = text.find('.').unwrap_or(text.len());
        for (at, character) in text.char_indices() {
            if at > 0 && at < whole && (whole - at) % 3 == 0 {
                f.write_str(" ")?;
            }
            write!(f, "{character}")?;
        }
        Ok(())
    }
}

/// Where a run took place.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    /// Processes that wanted to run in the minute before.
    load: f64,
}

impl Machine {
    /// This one, now. What the system does not say stays empty.
    pub(crate) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            processor: model.map_or_else(String::new, |(_, name)| name.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(f64::NAN),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, kernel, load } = self;
        write!(f, "{cores} x {processor}, kernel {kernel}, load {load} before the run")
    }
}
