//! What must be true when faults have ended and time has passed.

use ticketing_engine::Stats;

use crate::world::World;

impl World {
    /// Nobody waits for anything any more.
    pub(crate) fn check_that_all_is_settled(&mut self) {
        if let Some(client) = self.clients.iter().find(|client| client.up && !client.is_idle()) {
            let text = format!("client {} still waits, long after the last fault: {client:?}", client.number);
            self.ctx.ledger.fail("Liveness", text);
        }
    }

    /// Where a majority lives everybody could get a lock; where none does nobody could.
    pub(crate) fn check_probes(&mut self) {
        let is_over = self.ctx.ledger.is_over;
        for client in self.clients.iter().filter(|client| client.up) {
            let granted = client.probe == Some("granted");
            if granted == is_over {
                let text = format!("client {} asks at the end: {:?}", client.number, client.probe);
                self.ctx.ledger.fail(if is_over { "Identity" } else { "Liveness" }, text);
            }
        }
    }

    /// All keys are free and everybody is gone: no memory of anything is left.
    pub(crate) fn check_that_nothing_is_left(&mut self) {
        if self.ctx.ledger.is_over {
            return;
        }
        let mut states = Vec::new();
        for node in &self.nodes {
            let (table, stats) = (node.replica.table(), node.server.decider.stats());
            if table.held() + table.buried() > 0 {
                let text = format!("node {}: {} held, {} buried", node.slot, table.held(), table.buried());
                self.ctx.ledger.fail("Memory", text);
            }
            let Stats { held, waiters, tombstones, connections, .. } = stats;
            if [held, waiters, tombstones, connections] != [0; 4] || node.server.decider.pending() > 0 {
                self.ctx.ledger.fail("Memory", format!("node {}: its engine keeps {stats:?}", node.slot));
            }
            if node.server.connections() > 0 {
                self.ctx.ledger.fail("Memory", format!("node {} keeps connections", node.slot));
            }
            states.push((node.raft.applied, table.hash(), node.replica.place()));
        }
        states.dedup();
        if states.len() > 1 {
            self.ctx.ledger.fail("Replica", format!("in the end nodes differ: {states:?}"));
        }
    }
}
