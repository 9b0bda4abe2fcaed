//! The log, and the nodes that apply it at times and on clocks of their own.

use ticketing_engine::{Config, Effect, Engine, Nanos, Table, record};

use crate::model::Model;
use crate::plain::Plain;

pub(crate) const NODES: usize = 3;

#[derive(Debug)]
pub(crate) struct Cluster {
    /// Records of the batches that were appended for good.
    log: Vec<Vec<u8>>,
    nodes: [Node; NODES],
    /// A snapshot that was taken and not yet sent.
    snapshot: Option<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    table: Table,
    plain: Plain,
    /// How much of the log it has applied.
    applied: usize,
    /// What its clock says is this more than what the story says.
    ahead: i64,
}

impl Cluster {
    pub(crate) fn new(ahead: [i64; NODES]) -> Self {
        Self { log: Vec::new(), nodes: ahead.map(Node::new), snapshot: None }
    }

    pub(crate) fn clock(&self, node: usize, now: Nanos) -> Nanos {
        self.nodes[node].clock(now)
    }

    pub(crate) fn append(&mut self, record: Vec<u8>) {
        self.log.push(record);
    }

    /// A node applies so many more entries.
    pub(crate) fn catch_up(&mut self, now: Nanos, node: usize, entries: usize) -> Result<(), String> {
        let node = &mut self.nodes[node];
        for record in self.log.iter().skip(node.applied).take(entries) {
            node.apply(now, record)?;
        }
        Ok(())
    }

    pub(crate) fn take_snapshot(&mut self, of: usize) {
        self.snapshot = Some(self.nodes[of].clone());
    }

    /// A machine boots: it holds nothing, and its clock begins, so that it shows this now.
    pub(crate) fn boot(&mut self, now: Nanos, node: usize, clock: Nanos) {
        self.nodes[node] = Node::new(clock.cast_signed() - now.cast_signed());
    }

    /// A node that is behind gets the snapshot, which was under way for so long.
    /// Returns what it held, if there was one.
    pub(crate) fn send_snapshot(
        &mut self,
        now: Nanos,
        transit: Nanos,
        to: usize,
    ) -> Result<Option<Plain>, String> {
        let to = &mut self.nodes[to];
        let Some(from) = self.snapshot.take_if(|from| from.applied >= to.applied) else { return Ok(None) };
        from.plain.agrees_with(&from.table).map_err(|why| format!("the snapshot changed: {why}"))?;
        let (here, there) = (from.clock(now), to.clock(now + transit));
        let mut bytes = Vec::new();
        from.table.write(here, &mut bytes);
        to.table = Table::read(there, [transit, 5], &bytes).map_err(|bad| bad.to_string())?;
        (to.plain, to.applied) = (from.plain.on_clock(here, there), from.applied);
        to.plain.agrees_with(&to.table)?;
        Ok(Some(to.plain.clone()))
    }

    /// What a node holds.
    pub(crate) fn plain(&self, node: usize) -> &Plain {
        &self.nodes[node].plain
    }

    /// A node takes office: an engine, one with other hash tables, and the model of both.
    pub(crate) fn take_office(
        &mut self,
        now: Nanos,
        node: usize,
        [config, twin]: [&Config; 2],
    ) -> Result<(Engine, Engine, Model), String> {
        self.catch_up(now, node, usize::MAX)?;
        let node = &self.nodes[node];
        let mut bytes = Vec::new();
        node.table.write(node.clock(now), &mut bytes);
        let other = Table::read(node.clock(now), [6, 7], &bytes).map_err(|bad| bad.to_string())?;
        node.plain.agrees_with(&other)?;
        Ok((
            Engine::restore(*config, &node.table),
            Engine::restore(*twin, &other),
            Model::restore(config, &node.plain),
        ))
    }
}

impl Node {
    fn new(ahead: i64) -> Self {
        Self { table: Table::new([3, 4]), plain: Plain::default(), applied: 0, ahead }
    }

    fn clock(&self, now: Nanos) -> Nanos {
        now.checked_add_signed(self.ahead).expect("clocks begin before the story does")
    }

    fn apply(&mut self, now: Nanos, record: &[u8]) -> Result<(), String> {
        let now = self.clock(now);
        let effects = record::decode(record).map_err(|bad| bad.to_string())?;
        self.table.apply_batch(now, effects.clone()).map_err(|violation| violation.to_string())?;
        effects.into_iter().try_for_each(|effect| self.plain.apply(now, effect))?;
        self.applied += 1;
        self.plain.agrees_with(&self.table)
    }
}

/// The record of a batch, as it goes into the log.
pub(crate) fn record_of<'a>(effects: impl Iterator<Item = Effect<'a>>) -> Vec<u8> {
    let mut record = Vec::new();
    record::encode(effects, &mut record);
    record
}
