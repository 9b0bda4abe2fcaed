//! The types that the log and its replication are made of. This crate alone
//! names a type of openraft.

use std::fmt;

use bytes::Bytes;
use openraft::RaftTypeConfig;
use openraft::impls::{BoxedErrorSource, InlineBatch, leader_id_std};
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId;
use openraft_rt_tokio::TokioRuntime;
use serde::{Deserialize, Serialize};

use crate::born::Born;
use crate::report::Report;

/// Number of a node. It belongs to one process and is never used again: a process
/// that comes back without its memory comes back under another one.
pub type NodeId = u64;

/// The first node ids, those of the founders, are 1 to 5. All others are greater.
pub(crate) const FIRST_LATER_ID: NodeId = 1 << 32;

/// Where a node is reached.
#[cfg_attr(test, derive(Default))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Index of the configured place that it fills.
    pub(crate) slot: u8,
    /// Where its peers reach it, `host:port`.
    pub(crate) peer: String,
    /// Where clients reach it, `host:port`.
    pub(crate) client: String,
}

/// What an entry of the log says.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Command {
    /// The effects of one batch, decided by the engine of this office.
    Batch {
        term: u64,
        run: u64,
        seq: u64,
        record: Bytes,
        /// Means nothing to another node, nor to another life of this one.
        #[serde(skip)]
        born: Born,
    },
    /// A leader takes office: what comes before is all that earlier ones have left.
    /// No token below the first is given out.
    Office { term: u64, run: u64, first_token: u64 },
    /// The process that calls itself `incarnation` gets a node id and this place.
    Seat { incarnation: u128, member: Member },
}

/// What applying a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Applied {
    /// It was done.
    Done,
    /// It was of an office that is over, or not the next of its office, and did nothing.
    Skipped,
    /// This node id was given out.
    Seated(NodeId),
}

impl Command {
    /// Roughly how much memory it takes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Batch { record, .. } => record.len(),
                Self::Office { .. } => 0,
                Self::Seat { member, .. } => member.peer.len() + member.client.len(),
            }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch { term, run, seq, record, .. } => {
                write!(f, "batch {seq} of office {term}.{run}, {} bytes", record.len())
            }
            Self::Office { term, run, .. } => write!(f, "office {term}.{run} begins"),
            Self::Seat { member, .. } => write!(f, "a seat for slot {}", member.slot),
        }
    }
}

// Keys are the users' business.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The bundle of types that openraft works with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Types;

impl RaftTypeConfig for Types {
    type D = Command;
    type R = Applied;
    type NodeId = NodeId;
    type Node = Member;
    type Term = u64;
    // One leader a term, so that a term names the leader.
    type LeaderId = leader_id_std::LeaderId<u64, NodeId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Command, NodeId, Member>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = TokioRuntime;
    type Responder<T>
        = Report<T>
    where
        T: Send + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<Types>;
pub(crate) type Raft = openraft::Raft<Types, crate::machine::Machine>;
