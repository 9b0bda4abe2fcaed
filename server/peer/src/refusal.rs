//! Why a peer is not talked to.

use crate::identity::{ClusterId, Link};

/// The version of the peer protocol. Only peers of the same version talk.
pub const VERSION: u16 = 1;

/// Why one end of a connection does not want the other one.
///
/// A dialler believes [`Refusal::Secret`] and [`Refusal::Version`] from anyone,
/// as there is nobody yet whom it could believe more; every other one only from
/// a listener that has proved the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Another version of the peer protocol.
    #[error("the other side speaks version {other} of the peer protocol, this one version {VERSION}")]
    Version {
        /// The other side's version.
        other: u16,
    },
    /// The dialler did not prove the secret.
    #[error("the two sides have different peer secrets (or something between them ends TLS)")]
    Secret,
    /// The dialler belongs to another cluster, or means another one.
    #[error("the dialler belongs to or means cluster {dialler}, the listener belongs to cluster {listener}")]
    Cluster {
        /// What the dialler said.
        dialler: ClusterId,
        /// What the listener says.
        listener: ClusterId,
    },
    /// The dialler means another node.
    #[error("node {meant} is meant, but the one that answers there is node {answering} (0: none yet)")]
    Node {
        /// Whom the dialler means.
        meant: u64,
        /// Who answers; 0: a process without a node id.
        answering: u64,
    },
    /// Both ends have the same node id.
    #[error("both ends say that they are node {node} (does a node dial its own address?)")]
    Oneself {
        /// The id.
        node: u64,
    },
    /// The dialler's node id has been given up for good.
    #[error("the dialler's node id is retired")]
    Retired,
    /// The listener takes no peers now: it is starting or stopping, say.
    #[error("the listener takes no peers now")]
    NotNow,
    /// The listener has as many connections as it may have.
    #[error("the listener has as many peer connections as it takes")]
    Full,
}

/// In the place of a refusal's code: there is none.
pub(crate) const WELCOME: u8 = 0;

impl Refusal {
    /// What stands for it in the listener's verdict.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Secret => 1,
            Self::Cluster { .. } => 2,
            Self::Node { .. } => 3,
            Self::Oneself { .. } => 4,
            Self::Retired => 5,
            Self::Full => 6,
            // A version is refused before there is a verdict.
            Self::NotNow | Self::Version { .. } => 7,
        }
    }

    /// The refusal with this code, of this connection. Codes that are not known
    /// say no more than that the listener does not want to.
    pub(crate) fn from_code(code: u8, link: &Link) -> Self {
        match code {
            1 => Self::Secret,
            // The ids say what is wrong with them.
            2..=4 => link.check().err().unwrap_or(Self::NotNow),
            5 => Self::Retired,
            6 => Self::Full,
            _ => Self::NotNow,
        }
    }

    /// Its kind in a word, by which log lines are counted.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Version { .. } => "version",
            Self::Secret => "secret",
            Self::Cluster { .. } => "cluster",
            Self::Node { .. } => "node",
            Self::Oneself { .. } => "oneself",
            Self::Retired => "retired",
            Self::NotNow => "not now",
            Self::Full => "full",
        }
    }
}
