//! The connections to the other nodes: one to each, whoever uses it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ticketing_peer::{Config, Party, Peer};

use crate::types::{Member, NodeId};

/// The connections that this process opens under one name. Clones share them.
#[derive(Clone)]
pub(crate) struct Peers {
    me: Party,
    config: Config,
    open: Arc<Mutex<Open>>,
}

/// By address, node and use.
type Open = HashMap<(String, NodeId, Use), Peer>;

/// What a connection is for. A call that misses its deadline ends its connection,
/// so what may take long has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    Messages,
    Snapshots,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Peers {
    pub(crate) fn new(me: Party, config: Config) -> Self {
        Self { me, config, open: Arc::default() }
    }

    /// To a node; whoever else answers there is not spoken to.
    pub(crate) fn to(&self, member: &Member, node: NodeId) -> Peer {
        self.connection(&member.peer, Party { cluster: self.me.cluster, node }, Use::Messages)
    }

    /// The same, for snapshots.
    pub(crate) fn with_snapshots_to(&self, member: &Member, node: NodeId) -> Peer {
        self.connection(&member.peer, Party { cluster: self.me.cluster, node }, Use::Snapshots)
    }

    /// To whoever answers at this address.
    pub(crate) fn anybody_at(&self, address: &str) -> Peer {
        self.connection(address, Party::NOBODY, Use::Messages)
    }

    fn connection(&self, address: &str, meant: Party, purpose: Use) -> Peer {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Peer::new(address, self.me, meant, self.config.clone());
        open.entry((address.to_owned(), meant.node, purpose)).or_insert_with(make).clone()
    }

    /// Closes the connections to nodes that are not wanted any more.
    pub(crate) fn keep(&self, wanted: impl Fn(NodeId) -> bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, node, _), _| *node == 0 || wanted(*node));
    }
}
