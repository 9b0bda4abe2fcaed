//! How a node takes office: it leads, and an entry of its own term has been
//! applied here, so that nothing that an earlier leader has left can follow.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use ticketing_engine::{Fate, Office};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::info;

use crate::node::{Inner, Running};
use crate::proposal::fate;
use crate::report::Report;
use crate::standing::{Leader, Stage};
use crate::types::Command;

/// A leader that has not yet heard of a majority is refused by openraft itself.
const RETRY: Duration = Duration::from_millis(5);

/// No proposal is waited for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the office and the leader in the standing true.
pub(crate) async fn hold(inner: Arc<Inner>, running: Arc<Running>) {
    let mut metrics = running.raft.server_metrics();
    let mut renounced = running.renounced.subscribe();
    let mut last = Office { term: 0, run: 0 };
    loop {
        let (leads_in, leader, has_begun) = {
            let metrics = metrics.borrow_watched();
            let leads = metrics.state == ServerState::Leader && metrics.vote.is_committed();
            let leader = metrics.current_leader.and_then(|node| {
                let member = metrics.membership_config.membership().get_node(&node)?;
                Some(Leader { node, client: member.client.clone() })
            });
            let has_begun = metrics.membership_config.membership().voter_ids().next().is_some();
            (leads.then_some(metrics.vote.leader_id.term), leader, has_begun)
        };
        let given_up = *renounced.borrow_and_update();
        inner.stand(|standing| {
            if has_begun && standing.stage == Stage::Forming {
                standing.stage = Stage::Member;
            }
            standing.leader = leader;
            if standing.office.map(|office| office.term) != leads_in || standing.office == given_up {
                standing.office = None;
            }
        });
        if let Some(term) = leads_in
            && inner.standing.borrow().office.is_none()
        {
            let run = if last.term == term { last.run + 1 } else { 1 };
            last = Office { term, run };
            if take(&running, last).await {
                if inner.config.slots.len() == 1 {
                    info!("serving what the disk holds");
                } else {
                    info!(term, run, "in office");
                }
                inner.stand(|standing| standing.office = Some(last));
            } else {
                sleep(RETRY).await;
            }
            continue;
        }
        tokio::select! {
            changed = metrics.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            changed = renounced.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Whether this office has begun.
async fn take(running: &Running, office: Office) -> bool {
    let (told, outcome) = oneshot::channel();
    let report = Report::to(move |result| {
        let _ = told.send(fate(result));
    });
    // The first leader is a founder.
    let first_token = running.form.as_ref().map_or(1, |form| form.first_token);
    let Office { term, run } = office;
    let write = running.raft.write(Command::Office { term, run, first_token }).with_leader(term);
    if write.responder(report).await.is_err() {
        return false;
    }
    matches!(timeout(PATIENCE, outcome).await, Ok(Ok(Fate::Applied)))
}
