//! What a process says about its cluster, for people and their tools.

use std::time::Duration;

use openraft::Instant as _;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use serde::{Deserialize, Serialize};

use crate::node::Cluster;
use crate::standing::Stage;
use crate::types::NodeId;

/// Every value of [`Status::role`].
pub const ROLES: [&str; 9] =
    ["leader", "follower", "candidate", "learner", "blank", "forming", "over", "superseded", "broken"];

/// A process and its cluster at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The name of the place that this process fills.
    pub slot: String,
    /// `leader`, `follower`, `candidate` or `learner`; or `blank` (not in a cluster),
    /// `forming` (its cluster has not begun), `over` (its cluster has ended),
    /// `superseded` or `broken` (the process is about to end).
    pub role: String,
    /// Whether it grants locks at the moment.
    pub serving: bool,
    /// The cluster's identity, 32 hexadecimal digits, which is the fencing domain.
    pub identity: Option<String>,
    /// This node's id.
    pub node: Option<NodeId>,
    /// The election term; 0 before the first.
    pub term: u64,
    /// Who leads.
    pub leader: Option<MemberStatus>,
    /// Who has a vote.
    pub voters: Vec<MemberStatus>,
    /// Who is about to have one.
    pub learners: Vec<MemberStatus>,
    /// Index of the last entry of the log that is applied here.
    pub applied: u64,
    /// Digest of the locks that are held, 16 hexadecimal digits: equal on all nodes
    /// that have applied as much.
    pub state_hash: String,
    /// Keys that are held.
    pub held: u64,
    /// Milliseconds since a majority was seen, by this node or through its leader.
    pub out_of_touch_ms: u64,
    /// Memory that the log takes, in bytes.
    pub log_bytes: u64,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its node id.
    pub node: NodeId,
    /// The name of its place.
    pub slot: String,
    /// Where its peers reach it.
    pub peer: String,
    /// Where clients reach it.
    pub client: String,
    /// Milliseconds since it last acknowledged something; only the leader knows.
    pub heard_ms_ago: Option<u64>,
    /// The last entry of the log that it has; only the leader knows.
    pub matched: Option<u64>,
}

impl Cluster {
    /// This process and its cluster, now.
    #[must_use]
    pub fn status(&self) -> Status {
        let inner = &self.0;
        let standing = inner.standing.borrow().clone();
        let mut status = Status {
            slot: inner.slot().map(|slot| slot.name.clone()).unwrap_or_default(),
            role: name(standing.stage).to_owned(),
            serving: standing.office.is_some(),
            identity: standing.identity.map(|identity| identity.to_string()),
            node: standing.node,
            term: 0,
            leader: None,
            voters: Vec::new(),
            learners: Vec::new(),
            applied: 0,
            state_hash: String::new(),
            held: 0,
            out_of_touch_ms: 0,
            log_bytes: 0,
        };
        let Some(running) = inner.running() else { return status };
        let view = running.machine.view();
        status.applied = view.index();
        status.state_hash = format!("{:016x}", view.replica.table().hash());
        status.held = view.replica.table().held() as u64;
        status.log_bytes = running.log.weight() as u64;
        status.out_of_touch_ms = millis(running.out_of_touch());
        let metrics = running.raft.metrics();
        let metrics = metrics.borrow_watched();
        status.term = metrics.current_term;
        if standing.stage == Stage::Member {
            role(metrics.state).clone_into(&mut status.role);
        }
        let membership = metrics.membership_config.membership();
        let member = |node: NodeId| {
            let member = membership.get_node(&node)?;
            let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(&node)?.as_ref());
            let matched =
                metrics.replication.as_ref().and_then(|matched| (*matched.get(&node)?)?.index.into());
            Some(MemberStatus {
                node,
                slot: inner.config.slots.get(member.slot).map(|slot| slot.name.clone()).unwrap_or_default(),
                peer: member.peer.clone(),
                client: member.client.clone(),
                heard_ms_ago: heard.map(|at| millis(at.elapsed())),
                matched,
            })
        };
        status.leader = metrics.current_leader.and_then(member);
        status.voters = membership.voter_ids().filter_map(member).collect();
        status.learners = membership.learner_ids().filter_map(member).collect();
        status
    }
}

const fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Blank => "blank",
        Stage::Forming => "forming",
        Stage::Member => "member",
        Stage::Over => "over",
        Stage::Superseded => "superseded",
        Stage::Broken => "broken",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const fn role(state: ServerState) -> &'static str {
    match state {
        ServerState::Leader => "leader",
        ServerState::Follower => "follower",
        ServerState::Candidate => "candidate",
        ServerState::Learner => "learner",
        ServerState::Shutdown => "broken",
    }
}
