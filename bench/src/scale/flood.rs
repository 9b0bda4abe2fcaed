//! One connection that floods the server with keep-alives, and another that
//! wants to work.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use ticketing_protocol::Key;

use crate::figures::{Figures, Latencies, median};
use crate::raw::Connection;
use crate::report::{Finding, Target};
use crate::stage::Stage;

const LEASE_SECS: u8 = 250;

pub(crate) fn measure(stage: &Stage) -> Result<Vec<Finding>> {
    let server = stage.server()?;
    let mut worker = Connection::open(server.addr())?;
    work(&mut worker, stage.plan.flood_cycles)?;
    let mut ratios = Vec::new();
    for _ in 0..stage.plan.rounds {
        stage.step("a flood of keep-alives");
        let quiet = work(&mut worker, stage.plan.flood_cycles)?;
        let flooded = beside_flood(server.addr(), || work(&mut worker, stage.plan.flood_cycles))?;
        ratios.push(flooded.p99_us / quiet.p99_us);
    }
    Ok(vec![Finding::new(
        "p99 beside a flood of keep-alives, against p99 without",
        median(ratios),
        "x",
        Target::AtMost(2.0),
    )])
}

/// Acquires and releases a key of its own, one after the other.
fn work(connection: &mut Connection, cycles: u32) -> Result<Figures> {
    let key = Key::new("own")?;
    let mut latencies = Latencies::new()?;
    let started = Instant::now();
    for owner in 0..u64::from(cycles) {
        let asked = Instant::now();
        let token = connection.take(key, owner, LEASE_SECS)?;
        connection.release(key, token)?;
        latencies.record(asked.elapsed())?;
    }
    Ok(latencies.figures(started.elapsed()))
}

/// Runs `body` while another connection sends empty frames as fast as the server takes them.
fn beside_flood<T>(address: SocketAddr, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut stream = Connection::open(address)?.into_stream();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| -> std::io::Result<()> {
            let keep_alives = vec![b'\n'; 64 * 1024];
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(&keep_alives)?;
            }
            Ok(())
        });
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        match flood.join() {
            Ok(flood) => flood.context("the server cut the flood off").and(outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
