//! Who a node is.

use std::path::Path;

use serde::{Deserialize, Serialize};
use ticketing_peer::ClusterId;

use super::DataDirError;
use crate::calls::Form;
use crate::node::Config;
use crate::types::{Member, NodeId};

/// What makes a process this node and no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    /// What the process called itself when it became this node.
    pub(crate) incarnation: u128,
    /// Where its cluster reaches it.
    pub(crate) member: Member,
    /// The names of the places of its cluster.
    pub(crate) slots: Vec<String>,
    /// How its cluster was formed, if it is a founder.
    pub(crate) form: Option<Form>,
}

impl Identity {
    pub(crate) fn cluster_id(&self) -> ClusterId {
        ClusterId(self.cluster.to_be_bytes())
    }

    /// Whether a process that was configured like this is to be this node.
    pub(super) fn fits(&self, config: &Config, folder: &Path) -> Result<(), DataDirError> {
        let path = folder.to_owned();
        let ours = config.slots.names();
        if self.slots != ours {
            return Err(DataDirError::OtherSlots { path, theirs: whose(&self.slots), ours: whose(&ours) });
        }
        let Member { slot, peer, client } = &self.member;
        let name = |slot: u8| ours.get(usize::from(slot)).cloned().unwrap_or_default();
        if *slot != config.slot {
            return Err(DataDirError::OtherSlot { path, theirs: name(*slot), ours: name(config.slot) });
        }
        // Nobody needs to find a server alone.
        if let Some(member) = config.member(*slot).filter(|member| *member != self.member && ours.len() > 1) {
            let theirs = format!("{peer}@{client}");
            let ours = format!("{}@{}", member.peer, member.client);
            return Err(DataDirError::OtherAddress { path, node: name(*slot), theirs, ours });
        }
        Ok(())
    }
}

fn whose(slots: &[String]) -> String {
    match slots {
        [_] => "a server in single mode".to_owned(),
        slots => format!("a cluster of {}", slots.join(", ")),
    }
}
