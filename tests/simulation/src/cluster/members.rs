//! Who belongs to the cluster. That is known to all at once, which real ones take
//! a round of messages for; it changes only where that makes no difference.

use std::collections::BTreeMap;

use crate::time::Time;

/// Ids of replacements begin above those of the founders.
const FIRST_LATER_ID: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) voters: Vec<u64>,
    pub(crate) learners: Vec<u64>,
    /// Slot and life of the process that has, or had, an id.
    place: BTreeMap<u64, (u8, u32)>,
    next_id: u64,
    /// The last term that somebody was elected in.
    pub(crate) term: u64,
    /// When the last message from one slot to another arrives: nothing overtakes it.
    pub(crate) last_message: BTreeMap<(u8, u8), Time>,
}

impl Members {
    /// The founders have the ids from 1 on.
    pub(crate) fn new(nodes: u8) -> Self {
        Self {
            voters: (1..=u64::from(nodes)).collect(),
            learners: Vec::new(),
            place: (0..nodes).map(|slot| (u64::from(slot) + 1, (slot, 1))).collect(),
            next_id: FIRST_LATER_ID,
            term: 0,
            last_message: BTreeMap::new(),
        }
    }

    pub(crate) fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// A new id for the process in a slot.
    pub(crate) fn admit(&mut self, slot: u8, life: u32) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.learners.push(id);
        self.seat(id, slot, life);
        id
    }

    /// The process that has an id has begun a new life.
    pub(crate) fn seat(&mut self, id: u64, slot: u8, life: u32) {
        self.place.insert(id, (slot, life));
    }

    pub(crate) fn place(&self, id: u64) -> Option<(u8, u32)> {
        self.place.get(&id).copied()
    }

    pub(crate) fn is_voter(&self, id: u64) -> bool {
        self.voters.contains(&id)
    }

    /// The voter that had the slot of this learner before.
    pub(crate) fn predecessor(&self, learner: u64) -> Option<u64> {
        let slot = self.place(learner)?.0;
        self.voters.iter().copied().find(|&voter| self.place(voter).is_some_and(|place| place.0 == slot))
    }

    pub(crate) fn replace(&mut self, old: u64, new: u64) {
        self.learners.retain(|&learner| learner != new);
        for voter in self.voters.iter_mut().filter(|voter| **voter == old) {
            *voter = new;
        }
    }

    /// Everybody but this one.
    pub(crate) fn others(&self, id: u64) -> Vec<u64> {
        self.voters.iter().chain(&self.learners).copied().filter(|&other| other != id).collect()
    }
}
