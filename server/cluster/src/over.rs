//! The end of an identity: when the memory of a majority is lost, nothing that
//! this cluster knew can be relied upon, and nothing brings it back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use ticketing_peer::{CallError, Refusal};
use tokio::time::sleep;
use tracing::error;

use crate::calls::Hello;
use crate::life::hello;
use crate::node::{Inner, Running};
use crate::standing::Stage;
use crate::types::NodeId;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// A node that has seen no majority for this long looks.
const SUSPICIOUS: Duration = Duration::from_secs(2);

/// Runs until it is dropped.
pub(crate) async fn watch(inner: Arc<Inner>, running: Arc<Running>) {
    // A process that has lost its memory never gets it back.
    let mut lost = BTreeSet::new();
    loop {
        sleep(INTERVAL).await;
        if running.out_of_touch() < SUSPICIOUS {
            continue;
        }
        let configs = {
            let metrics = running.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().get_joint_config().clone()
        };
        for node in configs.iter().flatten().copied().filter(|&node| node != running.node) {
            if !lost.contains(&node) && has_lost_its_memory(&inner, &running, node).await {
                lost.insert(node);
            }
        }
        let is_over =
            configs.iter().any(|config| config.intersection(&lost).count() > (config.len() - 1) / 2);
        if is_over && inner.stage() == Stage::Member {
            error!(
                identity = %running.identity,
                lost = lost.len(),
                "the memory of a majority of this cluster is lost: it has ended. Nothing brings it back; \
                 `ticketing-server init --new-identity` begins a new one"
            );
            inner.stand(|standing| {
                standing.stage = Stage::Over;
                standing.office = None;
            });
        }
    }
}

/// Whether somebody who knows nothing of this cluster answers in the place of this
/// node. (Another node of this cluster there is a replacement that a majority made.)
async fn has_lost_its_memory(inner: &Inner, running: &Running, node: NodeId) -> bool {
    let Some(member) = running.member(node) else { return false };
    match hello(&running.peers.to(&member, node)).await {
        // It may be told so over a connection from before as well as at a new one.
        Err(CallError::Refused(Refusal::Retired)) | Ok(Hello { retired: true, .. }) => {
            running.superseded.notify_one();
            return false;
        }
        Ok(_) | Err(_) => {}
    }
    match hello(&inner.strangers.anybody_at(&member.peer)).await {
        Ok(hello) => hello.slot == member.slot && hello.cluster != u128::from_be_bytes(running.identity.0),
        Err(_) => false,
    }
}
