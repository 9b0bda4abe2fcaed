//! What nodes say to each other beside what openraft has them say.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::types::{Member, NodeId, SnapshotMeta, Vote};

/// Kinds of calls.
pub(crate) mod kind {
    /// Who are you? To anybody.
    pub(crate) const HELLO: u8 = 1;
    /// Take part in a new cluster. To a blank process.
    pub(crate) const FORM: u8 = 2;
    /// Begin: every founder is there. To the first founder.
    pub(crate) const BEGIN: u8 = 3;
    /// Let me have my place back. To the leader.
    pub(crate) const JOIN: u8 = 4;
    /// Let a new process take this place while the old one still lives. To the leader.
    pub(crate) const REPLACE: u8 = 5;
    /// Entries of the log.
    pub(crate) const APPEND: u8 = 16;
    /// Will you vote for me?
    pub(crate) const VOTE: u8 = 17;
    /// Would you?
    pub(crate) const PRE_VOTE: u8 = 18;
    /// A piece of a snapshot.
    pub(crate) const SNAPSHOT: u8 = 19;
    /// Lead in my place.
    pub(crate) const TRANSFER: u8 = 20;
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Zero: none.
    pub(crate) cluster: u128,
    /// Zero: none.
    pub(crate) node: NodeId,
    pub(crate) slot: u8,
    /// Drawn when it began: two processes never have the same.
    pub(crate) incarnation: u128,
    /// Its identity has ended.
    pub(crate) over: bool,
    /// Its cluster has begun.
    pub(crate) begun: bool,
    /// Where the leader is reached, if it knows.
    pub(crate) leader: Option<Member>,
    /// The names of the places that it was configured with.
    pub(crate) slots: Vec<String>,
    /// To whom it says so is a node no more, as far as it knows.
    pub(crate) retired: bool,
    /// The identity that a process in its place belonged to before; zero: none, or
    /// nobody has noted it.
    pub(crate) former: u128,
    /// Of identities until now, no token above this one is known here.
    pub(crate) token_floor: u64,
}

/// A new cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    pub(crate) cluster: u128,
    /// Tokens begin here.
    pub(crate) first_token: u64,
    /// By slot; the node id of a founder is its slot + 1.
    pub(crate) founders: Vec<Founder>,
    /// The identity that this one follows, which has ended; zero: none.
    pub(crate) instead_of: u128,
    /// Somebody has said that a new identity is to begin where there were others.
    pub(crate) new_identity: bool,
}

/// One of the first nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Founder {
    pub(crate) incarnation: u128,
    pub(crate) member: Member,
}

/// Who asks for its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub(crate) incarnation: u128,
    pub(crate) member: Member,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Joined {
    /// You are this node of this cluster.
    Seated { cluster: u128, node: NodeId },
    /// Not here. The leader is there.
    NotLeader(Option<Member>),
    /// Not now, because of this.
    NotNow(String),
}

/// A piece of a snapshot. Pieces come in order, on one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Bytes of the whole.
    pub(crate) total: u64,
    /// Where this piece begins.
    pub(crate) offset: u64,
    pub(crate) bytes: bytes::Bytes,
}

/// How far a snapshot has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Received {
    /// The next piece, please.
    More,
    /// It is installed, or refused for this greater vote.
    Whole(Vote),
    /// Begin again.
    Again(String),
}

/// As bytes.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Writing to memory what derives its form cannot fail; an empty message is
    // refused by whoever reads it.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// From bytes, all of them.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
