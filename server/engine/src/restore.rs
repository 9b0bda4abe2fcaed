//! An engine that takes over what others have decided.

use crate::engine::Engine;
use crate::{Config, Table};

impl Engine {
    /// An engine that holds what the table holds, for a node that takes office.
    ///
    /// The caller has applied an entry of its own term before, so that nothing
    /// decided earlier is still to come. Leases and tombstones go on from where the table
    /// counts them: one that is over is due at the first
    /// [`Tick`](crate::Input::Tick). Nobody waits, as a queue ends with its engine.
    ///
    /// The first token is the table's next, or that of the `config` if it is greater.
    /// The clock of the new engine must be the one of the table.
    #[must_use]
    pub fn restore(config: Config, table: &Table) -> Self {
        let mut engine = Self::new(config);
        engine.next_token =
            table.last_token().checked_add(1).map(|token| token.max(config.next_token.max(1)));

        // Each list of timers is in the order of its deadlines, and a timer is set in
        // one step if it is the latest of its list.
        let mut locks = table.locks().collect::<Vec<_>>();
        locks.sort_unstable_by_key(|held| (held.since, held.token));
        engine.locks.reserve(locks.len());
        for held in locks {
            let id = engine.locks.insert(held.key, held.owner, held.token);
            let secs = if fault!(EndsLeasesThatItFinds) { 1 } else { held.lease_secs };
            let lease = engine.leases.set(held.since, u16::from(secs), id);
            if let Some(lock) = engine.locks.get_mut(id) {
                lock.lease = Some(lease);
                // Another engine may have told anybody of it.
                lock.verified = true;
            }
        }

        let mut tombstones = table.tombstones().collect::<Vec<_>>();
        tombstones.sort_unstable_by_key(|buried| (buried.since, buried.owner, buried.key));
        for buried in tombstones {
            engine.tombstones.insert(buried.owner, buried.key);
            engine.tombstones.committed(buried.owner, buried.key, buried.since);
        }
        engine
    }
}
