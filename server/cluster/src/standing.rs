//! Where this process stands in its cluster, as the rest of the server sees it.

use ticketing_engine::Office;
use ticketing_peer::ClusterId;

use crate::types::NodeId;

/// What this process is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It belongs to no cluster: nobody has initialised one, or it is about to
    /// come back into one.
    #[default]
    Blank,
    /// It has an identity and a node id; the cluster has not begun.
    Forming,
    /// It takes part.
    Member,
    /// The memory of a majority is lost: this identity has ended for good.
    Over,
    /// Its place has gone to another process. It must end.
    Superseded,
    /// It found itself broken and must end.
    Broken,
}

/// The node that leads, as far as this one knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its node id.
    pub node: NodeId,
    /// Where clients reach it, `host:port`.
    pub client: String,
}

/// Where this process stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What it is.
    pub stage: Stage,
    /// The cluster that it belongs to.
    pub identity: Option<ClusterId>,
    /// Its number there.
    pub node: Option<NodeId>,
    /// Who leads.
    pub leader: Option<Leader>,
    /// Set while this node may decide: everything that earlier leaders have left
    /// is applied here.
    pub office: Option<Office>,
}
