//! The root of a broker's tasks, and the order in which they end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::directory::Phase;
use super::shared::{Lane, Shared};
use super::supervise::supervise;
use crate::address::Address;
use crate::release::{ReleaseJob, compensate};

/// For releases under way. With the ends of the sessions a close stays below 2 s;
/// what a server does not confirm by then, its lease ends.
const RELEASES_DRAIN: Duration = Duration::from_millis(1750);

/// For waiters that were told to leave their queues.
const ACQUIRES_DRAIN: Duration = Duration::from_secs(1);

/// How often a draining broker looks whether it is done.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the tasks of a broker from its start to its end.
pub(super) async fn keep(
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    jobs: mpsc::UnboundedReceiver<ReleaseJob>,
) {
    let done = Done(Arc::clone(&shared));
    let mut tasks = JoinSet::new();
    for (connection, address) in addresses.into_iter().enumerate() {
        tasks.spawn(supervise(Arc::clone(&shared), connection, address));
    }
    tasks.spawn(compensate(Arc::clone(&shared), jobs));

    shared.reached(Phase::Draining).await;
    drain(&shared).await;
    shared.directory.advance(Phase::Stopping);
    while tasks.join_next().await.is_some() {}
    drop(done);
}

/// Lets what is under way come to its end.
async fn drain(shared: &Shared) {
    let began = Instant::now();
    let under_way =
        |lanes: &[Lane], most| lanes.iter().any(|&lane| shared.pending(lane) > 0) && began.elapsed() < most;
    while under_way(&[Lane::Late, Lane::Release, Lane::Dropped], RELEASES_DRAIN)
        || under_way(&[Lane::Acquire], ACQUIRES_DRAIN)
    {
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells everyone that no task is left, also when the runtime drops them all.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.directory.advance(Phase::Done);
    }
}
