//! How entries get from the leader to the others, and when they count.

use std::collections::BTreeMap;
use std::rc::Rc;

use ticketing_engine::{Fate, Office, Replica, Seq, Table};

use super::{Command, Entry, Log, Message};
use crate::context::Context;
use crate::events::{Event, NodeEvent};
use crate::mutant::Mutant;
use crate::network::Endpoint;
use crate::server::Node;
use crate::time::{MILLISECOND, SECOND, Time};
use crate::trace::Line;

/// What a node knows of the log and of its leader.
#[derive(Debug, Default)]
pub(crate) struct Raft {
    pub(crate) term: u64,
    pub(crate) log: Log,
    /// Entries up to here will never change.
    pub(crate) committed: u64,
    pub(crate) applied: u64,
    /// If it leads, as far as it knows.
    pub(crate) leading: Option<Leading>,
    /// Since when it has known that it does not lead any more.
    pub(crate) deposed_at: Time,
    /// The slot of whoever leads, as far as it knows.
    pub(crate) leader: Option<u8>,
    /// Proposals of this node that are in its log, by index.
    pub(crate) waiting: BTreeMap<u64, Waiting>,
    /// Proposals are taken in the order in which they were made.
    pub(crate) proposal_at: Time,
}

/// Who waits for an entry to be applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    Office(Office),
    Batch(Office, Seq),
}

/// What a leader knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    pub(crate) peers: BTreeMap<u64, Progress>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The next entry to be sent.
    next: u64,
    /// Up to here the logs are known to be equal.
    pub(crate) matched: u64,
    /// A snapshot is on its way.
    in_transfer: bool,
}

impl Progress {
    pub(crate) const fn unknown(last: u64) -> Self {
        Self { next: last + 1, matched: 0, in_transfer: false }
    }
}

impl Node {
    /// Takes a proposal: appends it if this node leads in the term that is meant.
    pub(crate) fn propose(&mut self, ctx: &mut Context, command: Command) {
        let waiting = match &command {
            Command::Office { office, .. } => Waiting::Office(*office),
            Command::Batch { office, seq, .. } => Waiting::Batch(*office, *seq),
        };
        let leads = self.raft.leading.is_some() && self.raft.term == command.term();
        if !leads || (ctx.refusal > 0.0 && ctx.random.chance(ctx.refusal)) {
            return self.tell(ctx, waiting, Fate::Refused);
        }
        let index = self.raft.log.push(Entry { term: self.raft.term, command: Rc::new(command) });
        if ctx.plan.is(Mutant::SettlesAtAppend) && matches!(waiting, Waiting::Batch(..)) {
            self.tell(ctx, waiting, Fate::Applied);
        } else {
            self.raft.waiting.insert(index, waiting);
        }
        self.replicate(ctx);
        self.commit(ctx);
    }

    /// Reports the fate of a proposal to the driver.
    pub(crate) fn tell(&mut self, ctx: &mut Context, waiting: Waiting, fate: Fate) {
        // What different parts of a server tell overtakes each other.
        let pause = ctx.random.between(0, ctx.plan.telling);
        let what = match waiting {
            Waiting::Office(office) => NodeEvent::Office { office, begun: fate == Fate::Applied },
            Waiting::Batch(office, seq) => NodeEvent::Fate { office, seq, fate },
        };
        if let (Waiting::Batch(office, seq), true) = (waiting, ctx.random.chance(0.02)) {
            // A second word changes nothing, whenever it comes.
            let again = NodeEvent::Fate { office, seq, fate };
            let later = ctx.random.between(0, SECOND);
            ctx.node_in(pause + later, self.slot, self.life, again);
        }
        ctx.node_in(pause, self.slot, self.life, what);
    }

    fn send(&self, ctx: &mut Context, to: u64, message: Message, longer: Time) {
        let Some((slot, life)) = ctx.members.place(to) else { return };
        let (from, end) = (Endpoint::Node(self.slot), Endpoint::Node(slot));
        let Some(delay) = ctx.network.message(&mut ctx.random, from, end) else { return };
        let last = ctx.members.last_message.entry((self.slot, slot)).or_default();
        *last = (*last).max(ctx.now + delay + longer);
        let what = NodeEvent::Peer(Box::new(message));
        ctx.queue.push(*last, Event::Node { slot, life, what });
    }

    /// Sends everybody what they lack.
    pub(crate) fn replicate(&mut self, ctx: &mut Context) {
        let peers = self.raft.leading.iter().flat_map(|leading| leading.peers.keys().copied());
        for peer in peers.collect::<Vec<_>>() {
            self.replicate_to(ctx, peer, false);
        }
    }

    /// Begins again behind what is known to have arrived, as after messages were lost.
    pub(crate) fn resync(&mut self, ctx: &mut Context) {
        let last = self.raft.log.last();
        let Some(leading) = &mut self.raft.leading else { return };
        let peers = leading.peers.keys().copied().collect::<Vec<_>>();
        for progress in leading.peers.values_mut() {
            progress.in_transfer = false;
            progress.next = if progress.matched == 0 { last + 1 } else { progress.matched + 1 };
        }
        for peer in peers {
            self.replicate_to(ctx, peer, true);
        }
    }

    fn replicate_to(&mut self, ctx: &mut Context, peer: u64, ask: bool) {
        let (term, committed) = (self.raft.term, self.raft.committed);
        let (base, last) = (self.raft.log.base(), self.raft.log.last());
        let Some(progress) = self.raft.leading.as_mut().and_then(|leading| leading.peers.get_mut(&peer))
        else {
            return;
        };
        if progress.in_transfer {
            return;
        }
        if progress.next <= base {
            progress.in_transfer = true;
            return self.send_snapshot(ctx, peer);
        }
        let before = progress.next - 1;
        let entries = self.raft.log.from(progress.next);
        progress.next = last + 1;
        let before = (before, self.raft.log.term(before).unwrap_or(0));
        let append = Message::Append { from: self.id, term, before, entries, committed, ask };
        self.send(ctx, peer, append, 0);
    }

    fn send_snapshot(&mut self, ctx: &mut Context, peer: u64) {
        let index = self.raft.applied;
        let last = (index, self.raft.log.term(index).unwrap_or(0));
        let (table, place) = (self.snapshot(ctx).into(), self.replica.place());
        let ages = ctx.ledger.ages(ctx.now, self.slot);
        let snapshot = Message::Snapshot { from: self.id, term: self.raft.term, last, table, place, ages };
        // A large one takes its time.
        let longer = if ctx.random.chance(0.2) { ctx.random.between(0, 20 * SECOND) } else { 0 };
        self.send(ctx, peer, snapshot, longer);
    }

    /// The applied table as bytes.
    pub(crate) fn snapshot(&self, ctx: &Context) -> Vec<u8> {
        let now = match ctx.plan.mutant {
            Some(Mutant::SnapshotWithoutElapsed) => 0,
            Some(Mutant::SnapshotClockAhead) => self.local(ctx) + 180 * SECOND,
            Some(_) | None => self.local(ctx),
        };
        let mut bytes = Vec::new();
        self.replica.table().write(now, &mut bytes);
        bytes
    }

    /// A message of another node.
    pub(crate) fn hear(&mut self, ctx: &mut Context, message: Message) {
        match message {
            Message::Append { from, term, before, entries, committed, ask } => {
                if term < self.raft.term {
                    return self.answer(ctx, from, None);
                }
                self.follow(ctx, term, Some(from));
                let wanted = ask || !entries.is_empty();
                let matched = self.append(ctx, before, entries);
                if let Some(matched) = matched {
                    self.raft.committed = self.raft.committed.max(committed.min(matched));
                    self.apply(ctx);
                }
                match matched {
                    Some(_) if wanted => self.answer(ctx, from, matched),
                    Some(_) => {}
                    None => {
                        let last = self.raft.log.last().min(before.0.saturating_sub(1));
                        let answer = Message::Answer { from: self.id, term, matched, last };
                        self.send(ctx, from, answer, 0);
                    }
                }
            }
            Message::Snapshot { from, term, last, table, place, ages } => {
                if term < self.raft.term {
                    return self.answer(ctx, from, None);
                }
                self.follow(ctx, term, Some(from));
                if last.0 > self.raft.applied {
                    match Table::read(self.local(ctx), self.hash_seed, &table) {
                        Ok(table) => {
                            let forgets = ctx.plan.is(Mutant::SnapshotWithoutPlace);
                            let place = if forgets { ticketing_engine::Place::default() } else { place };
                            ctx.ledger.resumed(ctx.now, self.slot, &ages);
                            self.install(ctx, last, Replica::restore(table, place));
                        }
                        Err(bad) => ctx.ledger.fail("Snapshot", format!("cannot be read: {bad}")),
                    }
                }
                self.answer(ctx, from, Some(last.0));
            }
            Message::Answer { from, term, matched, last } => self.answered(ctx, from, term, matched, last),
        }
    }

    fn answer(&self, ctx: &mut Context, to: u64, matched: Option<u64>) {
        let last = self.raft.log.last();
        let answer = Message::Answer { from: self.id, term: self.raft.term, matched, last };
        self.send(ctx, to, answer, 0);
    }

    /// Takes over entries of the leader; returns up to where the logs are equal now.
    fn append(&mut self, ctx: &mut Context, before: (u64, u64), entries: Vec<Entry>) -> Option<u64> {
        let (mut index, base) = (before.0, self.raft.log.base());
        if index >= base && self.raft.log.term(index) != Some(before.1) {
            return None;
        }
        for entry in entries {
            index += 1;
            if index <= base || self.raft.log.term(index) == Some(entry.term) {
                continue;
            }
            if index <= self.raft.log.last() {
                self.drop_tail(ctx, index);
            }
            self.raft.log.push(entry);
        }
        Some(index.max(base))
    }

    /// Another leader's log has something else from an index on.
    fn drop_tail(&mut self, ctx: &mut Context, from: u64) {
        ctx.note(Line::Truncated { slot: self.slot, from });
        if from <= self.raft.committed {
            let text = format!("node {} drops entry {from}, which it took for committed", self.slot);
            ctx.ledger.fail("Log", text);
        }
        self.raft.log.truncate(from);
        let fate = if ctx.plan.is(Mutant::DroppedIsApplied) { Fate::Applied } else { Fate::Unknown };
        for waiting in self.raft.waiting.split_off(&from).into_values() {
            self.tell(ctx, waiting, fate);
        }
    }

    fn install(&mut self, ctx: &mut Context, last: (u64, u64), replica: Replica) {
        ctx.note(Line::Installed { slot: self.slot, index: last.0 });
        self.raft.log.begin_at(last);
        self.raft.applied = last.0;
        self.raft.committed = self.raft.committed.max(last.0);
        self.replica = replica;
        ctx.ledger.installed(last.0, self.slot, &self.replica);
        // What its own proposals came to is in there, but it cannot tell.
        let known = last.0 + 1..=self.raft.log.last();
        let waiting = std::mem::take(&mut self.raft.waiting).into_iter();
        let (kept, lost) = waiting.partition::<BTreeMap<_, _>, _>(|(index, _)| known.contains(index));
        self.raft.waiting = kept;
        for waiting in lost.into_values() {
            self.tell(ctx, waiting, Fate::Unknown);
        }
        self.save(ctx);
        self.apply(ctx);
    }

    fn answered(&mut self, ctx: &mut Context, from: u64, term: u64, matched: Option<u64>, last: u64) {
        if term > self.raft.term {
            return self.follow(ctx, term, None);
        }
        let Some(leading) = self.raft.leading.as_mut().filter(|_| term == self.raft.term) else { return };
        let Some(progress) = leading.peers.get_mut(&from) else { return };
        progress.in_transfer = false;
        match matched {
            Some(matched) => {
                progress.matched = progress.matched.max(matched);
                progress.next = progress.next.max(matched + 1);
                if progress.next <= self.raft.log.last() {
                    self.replicate_to(ctx, from, false);
                }
            }
            None => {
                progress.next = (last + 1).clamp(progress.matched + 1, progress.next);
                self.replicate_to(ctx, from, true);
            }
        }
        self.commit(ctx);
    }

    /// Counts who has what.
    pub(crate) fn commit(&mut self, ctx: &mut Context) {
        let Some(leading) = &self.raft.leading else { return };
        let last = self.raft.log.last();
        let has = |voter: &u64| {
            if *voter == self.id {
                Some(last)
            } else {
                leading.peers.get(voter).map(|progress| progress.matched)
            }
        };
        let mut matched = ctx.members.voters.iter().map(|voter| has(voter).unwrap_or(0)).collect::<Vec<_>>();
        matched.sort_unstable_by(|one, other| other.cmp(one));
        let common = matched.get(ctx.members.majority() - 1).copied().unwrap_or(0);
        if common > self.raft.committed && self.raft.log.term(common) == Some(self.raft.term) {
            self.raft.committed = common;
            self.apply(ctx);
            self.replicate(ctx);
        }
    }

    /// There is a leader of this term, perhaps a known one.
    pub(crate) fn follow(&mut self, ctx: &mut Context, term: u64, leader: Option<u64>) {
        let before = (self.raft.leading.is_some(), self.raft.leader);
        if term > self.raft.term {
            self.raft.term = term;
            self.raft.leader = None;
            if self.raft.leading.take().is_some() {
                self.raft.deposed_at = ctx.now;
                ctx.note(Line::SteppedDown { slot: self.slot, term });
            }
        }
        if let Some((slot, _)) = leader.and_then(|leader| ctx.members.place(leader)) {
            self.raft.leader = Some(slot);
        }
        if before != (self.raft.leading.is_some(), self.raft.leader) {
            self.notice(ctx);
        }
    }

    /// This node was elected.
    pub(crate) fn lead(&mut self, ctx: &mut Context, term: u64) {
        let last = self.raft.log.last();
        let peers = ctx.members.others(self.id).into_iter().map(|peer| (peer, Progress::unknown(last)));
        self.raft.term = term;
        self.raft.leading = Some(Leading { peers: peers.collect() });
        self.raft.leader = Some(self.slot);
        ctx.note(Line::Elected { node: self.id, slot: self.slot, term, last });
        self.notice(ctx);
        self.resync(ctx);
    }

    /// A learner is to be told everything.
    pub(crate) fn teach(&mut self, ctx: &mut Context, learner: u64) {
        let last = self.raft.log.last();
        if let Some(leading) = &mut self.raft.leading {
            leading.peers.insert(learner, Progress::unknown(last));
            self.replicate_to(ctx, learner, true);
        }
    }

    /// The driver hears of a change soon.
    pub(crate) fn notice(&self, ctx: &mut Context) {
        let pause = ctx.random.between(0, 10 * MILLISECOND);
        ctx.node_in(pause, self.slot, self.life, NodeEvent::Leads);
    }
}
