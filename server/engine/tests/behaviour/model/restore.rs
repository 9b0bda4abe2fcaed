//! A model that takes over what others have decided.

use ticketing_engine::Config;

use super::{Kind, Lock, Model, TOMBSTONE_SECS, Tombstone};
use crate::plain::Plain;

impl Model {
    pub(crate) fn restore(config: &Config, plain: &Plain) -> Self {
        let mut model = Self::new(config);
        let next = plain.last_token.checked_add(1);
        model.next_token = next.map(|next| next.max(config.next_token.max(1)));

        let mut locks = plain.locks.iter().collect::<Vec<_>>();
        locks.sort_by_key(|(_, lock)| (lock.since, lock.token));
        for (&key, lock) in locks {
            let lease = Some(model.timer(lock.since, Kind::Lease, u16::from(lock.lease_secs)));
            let (owner, token) = (lock.owner, lock.token);
            // Whoever decided it may have told anybody.
            model.locks.insert(key, Lock { owner, token, lease, verified: true });
        }

        let mut tombstones = plain.tombstones.iter().collect::<Vec<_>>();
        tombstones.sort_by_key(|&(&buried, &since)| (since, buried));
        for (&(owner, key), &since) in tombstones {
            let age = Some(model.timer(since, Kind::Tombstone, TOMBSTONE_SECS));
            model.tombstones.push(Tombstone { owner, key, by: None, age });
        }
        model
    }
}
