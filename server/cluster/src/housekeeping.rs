//! Keeps the log short.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::node::{Inner, Running};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// What a log keeps after a snapshot, unless it is told otherwise.
pub const LOG_MEMORY: usize = 32 << 20;

/// Entries after which a snapshot is worth its while, however small they are.
const SNAPSHOT_AFTER: u64 = 500_000;

/// Runs until it is dropped.
pub(crate) async fn keep(inner: Arc<Inner>, running: Arc<Running>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked_at = 0;
    let mut told = false;
    let kept = inner.config.log_memory;
    loop {
        ticks.tick().await;
        let (applied, snapshot) = {
            let metrics = running.raft.data_metrics();
            let metrics = metrics.borrow_watched();
            let index = |log_id: &Option<crate::types::LogId>| log_id.map_or(0, |log_id| log_id.index);
            (index(&metrics.last_applied), index(&metrics.snapshot))
        };
        let weight = running.log.weight();
        let since = applied.saturating_sub(snapshot.max(asked_at));
        // As much again must have come, or as much as the last snapshot was, so that not
        // more is written of snapshots than of the log.
        let worthwhile = kept + running.machine.snapshot_bytes().max(kept);
        // A snapshot takes a while: it is not asked for twice for the same entries.
        let heavy = weight > worthwhile && since > 0 && snapshot >= asked_at;
        if heavy || since > SNAPSHOT_AFTER {
            asked_at = applied;
            // A node that has stopped needs none.
            let _ = running.raft.trigger().snapshot().await;
        }
        if let Some(point) = running.log.purge_point(kept).map(|point| point.min(snapshot))
            && point > 0
        {
            let _ = running.raft.trigger().purge_log(point).await;
        }
        if let Err(problem) = note_tokens(&inner, &running).await
            && !std::mem::replace(&mut told, true)
        {
            warn!(problem, "which tokens were given out cannot be noted; there is room for an hour's worth");
        }
    }
}

async fn note_tokens(inner: &Inner, running: &Running) -> Result<(), String> {
    let Some(marker) = inner.marker.clone() else { return Ok(()) };
    let last = running.machine.last_token();
    let noted = spawn_blocking(move || marker.saw(last)).await;
    noted.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
