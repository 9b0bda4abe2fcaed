//! Who speaks, and who is meant.

use std::fmt;

use crate::Refusal;

/// The identity of a cluster: 128 random bits, made once. All zero: none yet.
///
/// ```
/// use ticketing_peer::ClusterId;
/// assert!(ClusterId::default().is_none());
/// assert_eq!(ClusterId([0xab; 16]).to_string(), "abababababababababababababababab");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Whether there is no cluster yet.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether both are known and differ.
    fn contradicts(self, other: Self) -> bool {
        !self.is_none() && !other.is_none() && self != other
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

/// A node of a cluster, as it names itself or as another one means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Party {
    /// Its cluster. None: a process that belongs to no cluster yet, or a dialler
    /// that takes any.
    pub cluster: ClusterId,
    /// Its node id. 0: a process that has none yet, or a dialler that takes
    /// whoever answers.
    pub node: u64,
}

impl Party {
    /// No cluster and no node: a blank process, or whoever answers.
    pub const NOBODY: Self = Self { cluster: ClusterId([0; 16]), node: 0 };
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            0 => f.write_str("a process without a node id")?,
            node => write!(f, "node {node}")?,
        }
        if self.cluster.is_none() { Ok(()) } else { write!(f, " of cluster {}", self.cluster) }
    }
}

/// The two ends of a connection, once both have proved the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who dialled.
    pub from: Party,
    /// Whom it meant.
    pub meant: Party,
    /// Who answered.
    pub answering: Party,
}

impl Link {
    /// What the ids say against this connection. Both ends ask.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let Self { from, meant, answering } = *self;
        for cluster in [meant.cluster, from.cluster] {
            if cluster.contradicts(answering.cluster) {
                return Err(Refusal::Cluster { dialler: cluster, listener: answering.cluster });
            }
        }
        if meant.node != 0 && meant.node != answering.node {
            return Err(Refusal::Node { meant: meant.node, answering: answering.node });
        }
        if from.node != 0 && from.node == answering.node {
            return Err(Refusal::Oneself { node: from.node });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClusterId = ClusterId([1; 16]);
    const B: ClusterId = ClusterId([2; 16]);
    const NONE: ClusterId = ClusterId([0; 16]);

    fn party(cluster: ClusterId, node: u64) -> Party {
        Party { cluster, node }
    }

    #[test]
    fn only_what_is_known_can_contradict() {
        let ok = |from, meant, answering| Link { from, meant, answering }.check() == Ok(());
        assert!(ok(party(A, 1), party(A, 2), party(A, 2)));
        assert!(ok(Party::NOBODY, Party::NOBODY, Party::NOBODY));
        assert!(ok(Party::NOBODY, Party::NOBODY, party(A, 2)));
        assert!(ok(party(A, 1), party(A, 0), Party::NOBODY));
        assert!(ok(party(NONE, 0), party(A, 0), party(A, 2)));
    }

    #[test]
    fn each_contradiction_is_named() {
        let refusal = |from, meant, answering| Link { from, meant, answering }.check().unwrap_err();
        let clusters = Refusal::Cluster { dialler: A, listener: B };
        assert_eq!(refusal(party(A, 1), party(NONE, 0), party(B, 2)), clusters);
        assert_eq!(refusal(party(NONE, 0), party(A, 0), party(B, 2)), clusters);
        // The node ids of different clusters have nothing to do with each other.
        assert_eq!(refusal(party(A, 1), party(A, 2), party(B, 1)), clusters);
        let node = |meant, answering| Refusal::Node { meant, answering };
        assert_eq!(refusal(party(A, 1), party(A, 2), party(A, 3)), node(2, 3));
        assert_eq!(refusal(party(A, 1), party(A, 2), party(A, 1)), node(2, 1));
        assert_eq!(refusal(party(A, 1), party(A, 2), Party::NOBODY), node(2, 0));
        let oneself = Refusal::Oneself { node: 1 };
        assert_eq!(refusal(party(A, 1), party(A, 1), party(A, 1)), oneself);
        assert_eq!(refusal(party(A, 1), party(A, 0), party(A, 1)), oneself);
    }
}
