//! Which node sits in which of the configured places, and the node ids that were
//! given out. It is part of the replicated state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::{FIRST_LATER_ID, Member, NodeId};

/// The seats and the next node id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registry {
    next_id: NodeId,
    seats: BTreeMap<u8, Seat>,
}

/// Who was the last to be given a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u128,
    pub(crate) member: Member,
}

impl Default for Registry {
    fn default() -> Self {
        Self { next_id: FIRST_LATER_ID, seats: BTreeMap::new() }
    }
}

impl Registry {
    /// Gives a process a place and a node id; the same one if it has asked before.
    pub(crate) fn seat(&mut self, incarnation: u128, member: Member) -> NodeId {
        if let Some(seat) = self.seats.get(&member.slot)
            && seat.incarnation == incarnation
        {
            return seat.node;
        }
        let node = self.next_id;
        self.next_id += 1;
        self.seats.insert(member.slot, Seat { node, incarnation, member });
        node
    }

    /// The seats that were given out by the log. The founders have none.
    pub(crate) fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values()
    }

    /// Whether this id has been given out.
    pub(crate) fn is_issued(&self, node: NodeId) -> bool {
        node < self.next_id
    }

    /// Whether it is the current holder of a seat.
    pub(crate) fn is_seated(&self, node: NodeId) -> bool {
        self.seats.values().any(|seat| seat.node == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(slot: u8) -> Member {
        Member { slot, peer: "p:1".to_owned(), client: "c:1".to_owned() }
    }

    #[test]
    fn ids_grow_and_are_never_those_of_founders() {
        let mut registry = Registry::default();
        let ids = (0..1000).map(|process| registry.seat(process, member((process % 3) as u8)));
        let ids = ids.collect::<Vec<_>>();
        assert!(ids.iter().all(|&id| id > 5));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn who_asks_again_gets_the_same_id() {
        let mut registry = Registry::default();
        let first = registry.seat(7, member(0));
        assert_eq!(registry.seat(7, member(0)), first);
        assert!(registry.is_seated(first) && registry.is_issued(first));
        let second = registry.seat(8, member(0));
        assert_ne!(first, second);
        assert!(registry.is_seated(second) && !registry.is_seated(first));
        assert!(!registry.is_issued(second + 1));
    }
}
