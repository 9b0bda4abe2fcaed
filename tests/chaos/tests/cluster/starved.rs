//! Too little processor time.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Network};

use crate::partitions::same_state;
use crate::{PATIENCE, judge_all, load, time};

/// Processes that do nothing, as fast as they can.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(count: usize) -> Self {
        let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Self((0..count).map(spin).collect::<Result<_, _>>().unwrap())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Four spinners for each core beside a cluster and its clients: it is slow, and the
/// leader that is slow is not taken for dead.
#[test]
#[allow(clippy::print_stderr)] // Figures for whoever asked for them.
fn e103_little_processor_time() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let running = cluster.load(&load());
    running.wait_granted(50, PATIENCE);
    let cores = std::thread::available_parallelism().unwrap().get();
    let spinners = Spinners::start(4 * cores);
    let first = cluster.status(cluster.wait_leader()).unwrap().term;
    let granted = running.granted();
    let start = Instant::now();
    std::thread::sleep(time(Duration::from_secs(20)));
    running.wait_granted(50, PATIENCE);
    let took = start.elapsed();
    let changes = cluster.status(cluster.wait_leader()).unwrap().term - first;
    let granted = running.granted() - granted;
    drop(spinners);
    eprintln!("starved for {took:?}: {changes} elections, {granted} grants");
    judge_all(&running.finish());
    same_state(&cluster);
    assert!(changes <= 1 + took.as_secs() / 60, "{changes} elections within {took:?}");
}
