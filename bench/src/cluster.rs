//! Three nodes beside a server alone, and what group commit does for their disks.

use anyhow::{Result, ensure};
use ticketing_test_support::Cluster;

use crate::figures::{Figures, median};
use crate::process;
use crate::report::{Finding, Target};
use crate::stage::Stage;

const NODES: usize = 3;

/// Three nodes in memory, and a server alone, in turns under the same client. All
/// of them may run on every core: there are more of them than cores.
pub(crate) fn measure(stage: &Stage) -> Result<Vec<Finding>> {
    let cluster = start(stage, false)?;
    let nodes = cluster.clients();
    let alone = stage.server()?;
    stage.share_cores(&alone)?;
    let single = alone.addr().to_string();
    let (mut shares, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..stage.plan.rounds {
        stage.step("three nodes and one in turn");
        let together = bench(stage, &nodes, "contended", stage.plan.cycles)?;
        let apart = bench(stage, &single, "contended", stage.plan.cycles)?;
        shares.push(100.0 * together.cycles_per_sec / apart.cycles_per_sec);
        runs.push(together);
    }
    let run = Figures::median(&runs);
    Ok(vec![
        Finding::new("three nodes, contended", run.cycles_per_sec, "/s", Target::None),
        Finding::new("the same, as a share of a server alone", median(shares), "%", Target::AtLeast(40.0)),
        Finding::new("the same, p99 of a cycle", run.p99_us / 1000.0, "ms", Target::AtMost(10.0)),
    ])
}

/// Three nodes that force everything to disk: one task, then 64.
pub(crate) fn measure_durable(stage: &Stage) -> Result<Vec<Finding>> {
    let cluster = start(stage, true)?;
    let nodes = cluster.clients();
    let (mut ratios, mut ones, mut manies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..stage.plan.rounds.min(5) {
        stage.step("three nodes with disks");
        let one = bench(stage, &nodes, "sequential", stage.plan.durable_cycles)?;
        let many = bench(stage, &nodes, "own-key", stage.plan.durable_cycles * 50)?;
        ratios.push(many.cycles_per_sec / one.cycles_per_sec);
        ones.push(one.cycles_per_sec);
        manies.push(many.cycles_per_sec);
    }
    Ok(vec![
        Finding::new("three nodes with disks, one task", median(ones), "/s", Target::None),
        Finding::new("the same, 64 tasks", median(manies), "/s", Target::None),
        Finding::new("64 tasks against one", median(ratios), "x", Target::AtLeast(30.0)),
    ])
}

fn start(stage: &Stage, durable: bool) -> Result<Cluster> {
    let cluster = Cluster::start(NODES, durable);
    for node in cluster.nodes.iter().flatten() {
        stage.share_cores(node)?;
    }
    Ok(cluster)
}

fn bench(stage: &Stage, servers: &str, workload: &str, cycles: u64) -> Result<Figures> {
    let cycles = cycles.to_string();
    let args = ["--server", servers, "--json", "bench", workload, "--cycles", &cycles];
    let figures: Figures = process::json(&stage.ticketing, &args)?;
    ensure!(figures.cycles_per_sec > 0.0, "no cycle was done");
    Ok(figures)
}
