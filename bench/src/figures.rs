//! What one run of a workload says, and how it travels between processes.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a run of cycles took, as `ticketing bench --json` says it too.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Figures {
    /// Cycles of acquire and release a second, all tasks together.
    pub(crate) cycles_per_sec: f64,
    /// Of a whole cycle, like the others.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

impl Figures {
    /// The median of each figure by itself.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        Self {
            cycles_per_sec: of(|run| run.cycles_per_sec),
            p50_us: of(|run| run.p50_us),
            p99_us: of(|run| run.p99_us),
            max_us: of(|run| run.max_us),
        }
    }
}

/// Latencies of cycles while they are being collected, exact to three digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    pub(crate) fn record(&mut self, cycle: Duration) -> Result<()> {
        Ok(self.0.record(u64::try_from(cycle.as_nanos())?)?)
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub(crate) fn figures(&self, elapsed: Duration) -> Figures {
        let us = |ns: u64| ns as f64 / 1000.0;
        Figures {
            cycles_per_sec: self.0.len() as f64 / elapsed.as_secs_f64(),
            p50_us: us(self.0.value_at_quantile(0.5)),
            p99_us: us(self.0.value_at_quantile(0.99)),
            max_us: us(self.0.max()),
        }
    }
}

/// The middle one: a run that was disturbed does not move it.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}
