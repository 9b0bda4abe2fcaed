//! How an emptied place is filled again, by the leader, without an operator: the
//! process that asks for it gets a node id through the log, catches up as a
//! learner, and then takes the vote of the old node. One at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{ChangeMembers, Precondition, ServerState};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::calls::{Join, Joined};
use crate::node::{Inner, Running};
use crate::registry::Seat;
use crate::report::Report;
use crate::slots::Slots;
use crate::standing::Stage;
use crate::types::{Applied, Command, LogId, Member, NodeId, Types};

/// Between two looks at the seats, if nobody asks before.
const INTERVAL: Duration = Duration::from_millis(100);

/// A node that has acknowledged something within this time is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// A change of the membership that takes longer is looked at anew.
const PATIENCE: Duration = Duration::from_secs(10);

/// A learner that takes no longer for all that is in the log has caught up: it will
/// not hold up a majority that needs it.
const ROUND: Duration = Duration::from_secs(1);

/// How long a place may be taken over after an operator has asked for it.
const TAKEOVER: Duration = Duration::from_secs(600);

/// What a learner is to have before it votes: all that was in the log when the round began.
struct Round {
    learner: NodeId,
    until: u64,
    began: Instant,
}

/// What a leader knows of its cluster at a moment.
struct Look {
    leads_in: Option<u64>,
    leader: Option<Member>,
    membership_log_id: Option<LogId>,
    is_settled: bool,
    /// One configuration, or two while one replaces the other.
    configs: Vec<BTreeSet<NodeId>>,
    members: Vec<(NodeId, Member)>,
    last_index: u64,
    matched: Vec<(NodeId, u64)>,
    heard: Vec<(NodeId, Duration)>,
}

impl Running {
    fn look(&self) -> Look {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let leads = metrics.state == ServerState::Leader && metrics.vote.committed;
        let heard = metrics.heartbeat.iter().flatten();
        let matched = metrics.replication.iter().flatten();
        Look {
            leads_in: leads.then_some(metrics.current_term),
            leader: metrics.current_leader.and_then(|id| membership.get_node(&id)).cloned(),
            membership_log_id: *metrics.membership_config.log_id(),
            is_settled: metrics.membership_config == metrics.committed_membership_config,
            configs: membership.get_joint_config().clone(),
            members: membership.nodes().map(|(&id, member)| (id, member.clone())).collect(),
            last_index: metrics.last_log_index.unwrap_or(0),
            matched: matched.map(|(&id, at)| (id, at.map_or(0, |at| at.index))).collect(),
            heard: heard.filter_map(|(&id, at)| Some((id, at.as_ref()?.elapsed()))).collect(),
        }
    }

    /// Answers a process that asks for its place.
    pub(crate) async fn seat(&self, inner: &Inner, join: Join) -> Joined {
        let look = self.look();
        let Some(term) = look.leads_in else { return Joined::NotLeader(look.leader) };
        if inner.stage() != Stage::Member {
            return Joined::NotNow("the cluster has not begun".to_owned());
        }
        let slot = join.member.slot;
        if inner.config.slots.get(slot).is_none() {
            return Joined::NotNow(format!("the cluster has no place number {slot}"));
        }
        if let Some(node) = self.occupant(&look, slot, join.incarnation)
            && look.is_alive(self.node, node)
            && !self.may_be_taken(slot)
        {
            return Joined::NotNow(format!(
                "node {node} fills this place and was alive within the last second"
            ));
        }
        let (told, outcome) = oneshot::channel();
        let report = Report::to(move |result| {
            let _ = told.send(result);
        });
        let command = Command::Seat { incarnation: join.incarnation, member: join.member };
        let write = self.raft.write(command).with_leader(term).responder(report);
        if write.await.is_err() {
            return Joined::NotNow("the leader is ending".to_owned());
        }
        match timeout(PATIENCE, outcome).await {
            Ok(Ok(Some(Ok(done)))) => match done.response() {
                Applied::Seated(node) => {
                    self.seats_changed.notify_one();
                    Joined::Seated { cluster: u128::from_be_bytes(self.identity.0), node: *node }
                }
                Applied::Done | Applied::Skipped => Joined::NotNow("the leader changed its mind".to_owned()),
            },
            _ => Joined::NotNow("the leader cannot reach a majority at the moment".to_owned()),
        }
    }

    /// Who fills a place, if it is another process than the one that asks.
    fn occupant(&self, look: &Look, slot: u8, incarnation: u128) -> Option<NodeId> {
        let seat = self.machine.registry(|registry| {
            registry.seats().find(|seat| seat.member.slot == slot).map(|seat| (seat.node, seat.incarnation))
        });
        match seat {
            Some((_, seated)) if seated == incarnation => None,
            Some((node, _)) if look.members.iter().any(|(id, _)| *id == node) => Some(node),
            _ => look.voter_of(slot),
        }
    }

    fn may_be_taken(&self, slot: u8) -> bool {
        let takeover = self.takeover.lock().unwrap_or_else(PoisonError::into_inner);
        takeover.is_some_and(|(allowed, until)| allowed == slot && Instant::now() < until)
    }

    /// Does the next step towards a membership that is the seats; true: something was done.
    async fn step(&self, slots: &Slots, round: &mut Option<Round>) -> bool {
        let look = self.look();
        if look.leads_in.is_none() || !look.is_settled {
            return false;
        }
        let Some(voters) = look.configs.last() else { return false };
        if look.configs.len() > 1 {
            info!("finishing a change of the membership that an earlier leader began");
            return self.change(ChangeMembers::ReplaceAllVoters(voters.clone()), &look).await;
        }
        let seats = self.machine.registry(|registry| registry.seats().cloned().collect::<Vec<_>>());
        let learners = look.members.iter().map(|(id, _)| *id).filter(|id| !voters.contains(id));
        let forsaken = learners.filter(|id| !seats.iter().any(|seat| seat.node == *id));
        let forsaken = forsaken.collect::<BTreeSet<_>>();
        if !forsaken.is_empty() {
            return self.change(ChangeMembers::RemoveNodes(forsaken), &look).await;
        }
        let waiting = seats.into_iter().filter(|seat| !voters.contains(&seat.node));
        for seat in waiting {
            if !look.members.iter().any(|(id, _)| *id == seat.node) {
                let newcomer = [(seat.node, seat.member.clone())].into();
                return self.change(ChangeMembers::AddNodes(newcomer), &look).await;
            }
            if self.promote(&seat, voters, &look, slots, round).await {
                return true;
            }
        }
        false
    }

    /// Gives a learner that has caught up the vote of the node that it follows.
    async fn promote(
        &self,
        seat: &Seat,
        voters: &BTreeSet<NodeId>,
        look: &Look,
        slots: &Slots,
        round: &mut Option<Round>,
    ) -> bool {
        let name = slots.get(seat.member.slot).map_or("?", |slot| slot.name.as_str());
        let Some(old) = look.voter_of(seat.member.slot) else {
            warn!(name, "no voter fills this place, so nobody can be followed in it");
            return false;
        };
        if !look.is_alive(self.node, seat.node) || !look.has_caught_up(seat.node, round) {
            return false;
        }
        if old == self.node {
            // Whoever leads next gives the place away.
            if let Some(heir) = self.best_heir() {
                info!(name, heir, "this node is replaced, and hands leadership over before");
                // If the heir is not there yet, it is asked again.
                let _ = self.raft.trigger().transfer_leader(heir).await;
            }
            return false;
        }
        let new = voters.iter().copied().filter(|id| *id != old).chain([seat.node]).collect::<BTreeSet<_>>();
        if new.len() != slots.len() {
            return false;
        }
        let done = self.change(ChangeMembers::ReplaceAllVoters(new), look).await;
        if done {
            info!(name, old, new = seat.node, "a place is filled again");
        }
        done
    }

    async fn change(&self, change: ChangeMembers<NodeId, Member>, look: &Look) -> bool {
        let (Some(term), same) = (look.leads_in, look.membership_log_id) else { return false };
        let unchanged = [
            Precondition::<Types>::LastMembershipLogId { last_membership_log_id: same },
            Precondition::CommittedLeaderId { committed_leader_id: term.into() },
        ];
        match timeout(PATIENCE, self.raft.change_membership_if(change, false, unchanged)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                warn!(%error, "a change of the membership did not go through");
                false
            }
            Err(_) => {
                warn!("a change of the membership takes long");
                false
            }
        }
    }
}

impl Look {
    /// Whether a node has been heard of lately; the leader itself always is.
    fn is_alive(&self, me: NodeId, node: NodeId) -> bool {
        node == me || self.heard.iter().any(|(id, ago)| *id == node && *ago < ALIVE)
    }

    /// Whether a learner has all that was in the log a moment ago. How much that was does
    /// not matter, but how long it took.
    fn has_caught_up(&self, learner: NodeId, round: &mut Option<Round>) -> bool {
        let matched = self.matched.iter().find(|(id, _)| *id == learner).map_or(0, |(_, index)| *index);
        match round {
            _ if matched >= self.last_index => return true,
            Some(round) if round.learner == learner && matched < round.until => return false,
            Some(round) if round.learner == learner && round.began.elapsed() < ROUND => return true,
            _ => {}
        }
        *round = Some(Round { learner, until: self.last_index, began: Instant::now() });
        false
    }

    /// The voter that fills a place.
    fn voter_of(&self, slot: u8) -> Option<NodeId> {
        let mut filling = self.members.iter().filter(|(_, member)| member.slot == slot).map(|(id, _)| *id);
        let config = self.configs.last()?;
        filling.find(|id| config.contains(id))
    }
}

impl Inner {
    /// Lets a new process take a place although the old one lives.
    pub(crate) fn allow_takeover(&self, slot: u8) -> Result<(), String> {
        let running = self.running().ok_or("this process is not in a cluster")?;
        let look = running.look();
        if look.leads_in.is_none() {
            return Err("this node does not lead".to_owned());
        }
        let name = &self.config.slots.get(slot).ok_or("there is no such node")?.name;
        let voters = look.configs.iter().flatten().copied();
        let down = voters.filter(|id| !look.is_alive(running.node, *id)).collect::<BTreeSet<_>>();
        let others = down.iter().filter(|id| look.voter_of(slot) != Some(**id)).count();
        if others > 0 || look.configs.len() > 1 || !look.is_settled {
            return Err(format!(
                "another node is down or being replaced: to replace {name} as well would risk the majority"
            ));
        }
        let mut takeover = running.takeover.lock().unwrap_or_else(PoisonError::into_inner);
        *takeover = Some((slot, Instant::now() + TAKEOVER));
        Ok(())
    }
}

/// Runs until it is dropped.
pub(crate) async fn keep(inner: Arc<Inner>, running: Arc<Running>) {
    let mut round = None;
    loop {
        if !running.step(&inner.config.slots, &mut round).await {
            tokio::select! {
                () = running.seats_changed.notified() => {}
                () = sleep(INTERVAL) => {}
            }
        }
        let look = running.look();
        let seated = |id| running.machine.registry(|registry| registry.is_seated(id));
        running.peers.keep(|node| look.members.iter().any(|(id, _)| *id == node) || seated(node));
    }
}
