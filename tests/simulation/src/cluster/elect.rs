//! Who leads: decided by the world, with the votes that there could be.

use crate::context::Context;
use crate::mutant::Mutant;
use crate::network::Endpoint;
use crate::server::Node;
use crate::trace::Line;

/// Voters that run and can talk to each other, this one included.
fn reachable(ctx: &Context, nodes: &[Node], one: &Node) -> Vec<usize> {
    let talks = |node: &Node| {
        let (this, other) = (Endpoint::Node(one.slot), Endpoint::Node(node.slot));
        node.runs() && ctx.members.is_voter(node.id) && ctx.network.connected(this, other)
    };
    (0..nodes.len()).filter(|&index| nodes.get(index).is_some_and(talks)).collect()
}

/// The node that leads and can get something done.
pub(crate) fn leader(ctx: &Context, nodes: &[Node]) -> Option<usize> {
    let leads = |node: &Node| node.runs() && node.raft.leading.is_some() && ctx.members.is_voter(node.id);
    let best = (0..nodes.len()).filter(|&index| nodes.get(index).is_some_and(leads));
    let best = best.max_by_key(|&index| nodes.get(index).map(|node| node.raft.term))?;
    let node = nodes.get(best)?;
    let followers = reachable(ctx, nodes, node).into_iter();
    let followers =
        followers.filter(|&index| nodes.get(index).is_some_and(|it| it.raft.term <= node.raft.term));
    (followers.count() >= ctx.members.majority()).then_some(best)
}

/// Elects somebody else than the leader that there is, if anybody can be.
pub(crate) fn elect(ctx: &mut Context, nodes: &mut [Node]) {
    let blind = ctx.plan.is(Mutant::BlindVote);
    let mut candidates = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        if !node.runs() || !ctx.members.is_voter(node.id) {
            continue;
        }
        let mut votes = reachable(ctx, nodes, node);
        let knows = node.raft.log.knowledge();
        votes.retain(|&voter| {
            blind || nodes.get(voter).is_some_and(|voter| voter.raft.log.knowledge() <= knows)
        });
        let leads = node.raft.leading.is_some() && node.raft.term == ctx.members.term;
        if votes.len() >= ctx.members.majority() && !leads {
            candidates.push((index, votes));
        }
    }
    // Who is about to end is elected only if nobody else can be.
    let drains = |index: usize| nodes.get(index).is_some_and(|node| node.server.draining);
    if candidates.iter().any(|&(index, _)| !drains(index)) {
        candidates.retain(|&(index, _)| !drains(index));
    }
    if candidates.is_empty() {
        return;
    }
    let (winner, votes) = candidates.swap_remove(ctx.random.index(candidates.len()));
    ctx.members.term += 1;
    let term = ctx.members.term;
    for voter in votes {
        if let Some(node) = nodes.get_mut(voter).filter(|_| voter != winner) {
            node.follow(ctx, term, None);
        }
    }
    if let Some(node) = nodes.get_mut(winner) {
        node.lead(ctx, term);
    }
}

/// A learner that has all that the leader has takes the place of the process that
/// was in its slot before, and that is gone for good.
///
/// In any majority of the voters from then on there is one that has every entry
/// that could have been committed: of a majority before, those that live are all
/// still voters.
pub(crate) fn promote(ctx: &mut Context, nodes: &mut [Node]) {
    for learner in ctx.members.learners.clone() {
        let Some(best) = leader(ctx, nodes) else { return };
        let Some(node) = nodes.get_mut(best) else { return };
        let last = node.raft.log.last();
        let Some(leading) = &mut node.raft.leading else { return };
        let caught_up = leading.peers.get(&learner).is_some_and(|peer| peer.matched == last);
        if let Some(old) = ctx.members.predecessor(learner).filter(|_| caught_up) {
            leading.peers.remove(&old);
            ctx.members.replace(old, learner);
            ctx.ledger.count.replaced += 1;
            ctx.note(Line::Replaced { old, new: learner });
        }
    }
}
