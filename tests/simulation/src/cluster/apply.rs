//! What a node makes of the entries that count: the real replica, at the node's own time.

use ticketing_engine::{Broken, Fate, Replica};

use super::{Command, Entry};
use crate::context::Context;
use crate::mutant::Mutant;
use crate::server::{Node, Saved};

impl Node {
    /// Applies what has committed and is here.
    pub(crate) fn apply(&mut self, ctx: &mut Context) {
        let end = self.raft.committed.min(self.raft.log.last());
        while self.raft.applied < end {
            let index = self.raft.applied + 1;
            let Some(entry) = self.raft.log.get(index).cloned() else { return };
            self.raft.applied = index;
            let counts = match self.apply_entry(ctx, &entry) {
                Ok(counts) => counts,
                Err(broken) => {
                    return ctx
                        .ledger
                        .fail("Replica", format!("node {}, entry {index}: {broken}", self.slot));
                }
            };
            let Context { now, ledger, trace, .. } = ctx;
            ledger.applied(*now, trace, (index, self.slot), &entry, counts, &self.replica);
            if let Some(waiting) = self.raft.waiting.remove(&index) {
                self.tell(ctx, waiting, if counts { Fate::Applied } else { Fate::Refused });
            }
        }
        if self.raft.applied - self.raft.log.base() > 2 * ctx.plan.log_kept {
            self.save(ctx);
            self.raft.log.purge(self.raft.applied - ctx.plan.log_kept);
        }
    }

    fn apply_entry(&mut self, ctx: &Context, entry: &Entry) -> Result<bool, Broken> {
        match &*entry.command {
            Command::Office { office, first_token } => {
                Ok(self.replica.begin(entry.term, *office, *first_token))
            }
            Command::Batch { office, seq, record } => {
                let any = ctx.plan.is(Mutant::AnySequence);
                let seq = if any { self.replica.place().batches + 1 } else { *seq };
                self.replica.apply(self.local(ctx), entry.term, *office, seq, record)
            }
        }
    }

    /// Writes the applied state down, where a node has a disk.
    pub(crate) fn save(&mut self, ctx: &Context) {
        if ctx.plan.durable {
            let (index, table, place) = (self.raft.applied, self.snapshot(ctx), self.replica.place());
            self.saved = Some(Saved { index, table, ages: ctx.ledger.ages(ctx.now, self.slot), place });
        }
    }

    /// What was written down, at the time of the new life's clock.
    pub(crate) fn load(&mut self, ctx: &mut Context) {
        self.raft.applied = 0;
        self.replica = Replica::new(self.hash_seed);
        if let Some(saved) = &self.saved {
            match ticketing_engine::Table::read(self.local(ctx), self.hash_seed, &saved.table) {
                Ok(table) => self.replica = Replica::restore(table, saved.place),
                Err(bad) => ctx.ledger.fail("Snapshot", format!("cannot be read from disk: {bad}")),
            }
            self.raft.applied = saved.index;
        }
        let ages = self.saved.as_ref().map_or(&[][..], |saved| &saved.ages);
        ctx.ledger.resumed(ctx.now, self.slot, ages);
        self.raft.committed = self.raft.applied;
    }
}
