//! The product beside the floor: server and client each in a process of their
//! own, the same number of tasks, the same number of cycles, in turns.

use std::env;

use anyhow::Result;
use serde::Serialize;

use crate::figures::{Figures, median};
use crate::plan::Plan;
use crate::process;
use crate::report::{Finding, Target};
use crate::stage::Stage;

/// One of the three workloads of `ticketing bench`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    Contended,
    OwnKey,
    Sequential,
}

impl Workload {
    const fn name(self) -> &'static str {
        match self {
            Self::Contended => "contended",
            Self::OwnKey => "own-key",
            Self::Sequential => "sequential",
        }
    }

    const fn tasks(self) -> &'static str {
        match self {
            Self::Contended | Self::OwnKey => "64",
            Self::Sequential => "1",
        }
    }

    const fn cycles(self, plan: &Plan) -> u64 {
        match self {
            Self::Contended | Self::OwnKey => plan.cycles,
            Self::Sequential => plan.sequential_cycles,
        }
    }
}

/// Medians over all rounds; the ratios are medians of each round's ratio.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) workload: &'static str,
    pub(crate) product: Figures,
    pub(crate) floor: Figures,
    pub(crate) verdict: Finding,
}

/// Runs a workload and its floor in turns.
pub(crate) fn measure(workload: Workload, stage: &Stage) -> Result<Comparison> {
    let cycles = workload.cycles(&stage.plan).to_string();
    let server = stage.server()?;
    let server_address = server.addr().to_string();
    let (_floor_server, floor_address) = stage.floor_server()?;
    let floor_address = floor_address.to_string();
    let this = env::current_exe()?;
    let product = ["--server", &server_address, "--json", "bench", workload.name(), "--cycles", &cycles];
    let floor = ["floor-client", &floor_address, "--tasks", workload.tasks(), "--cycles", &cycles];
    let mut rounds: Vec<(Figures, Figures)> = Vec::new();
    for _ in 0..stage.plan.rounds {
        stage.step(workload.name());
        rounds.push((process::json(&stage.ticketing, &product)?, process::json(&this, &floor)?));
    }
    let ratio = |of: fn(&Figures) -> f64| {
        median(rounds.iter().map(|(product, floor)| of(product) / of(floor)).collect())
    };
    let verdict = match workload {
        Workload::Contended | Workload::OwnKey => Finding::new(
            "share of the floor",
            100.0 * ratio(|figures| figures.cycles_per_sec),
            "%",
            Target::AtLeast(50.0),
        ),
        Workload::Sequential => {
            Finding::new("p50 against the floor's", ratio(|figures| figures.p50_us), "x", Target::AtMost(1.5))
        }
    };
    let (product, floor): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    Ok(Comparison {
        workload: workload.name(),
        product: Figures::median(&product),
        floor: Figures::median(&floor),
        verdict,
    })
}
