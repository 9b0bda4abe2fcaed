//! How a cluster is initialised: once, by an explicit command, when a process waits
//! in every place.
//!
//! Each process is asked who it is; all must be blank (or be nodes of a cluster that
//! has ended, if that is what is to be replaced). Then each is told the identity and
//! its fellow founders, by the incarnations that have just answered: a process that
//! has ended and begun again since is not meant, and refuses. When all have agreed,
//! the first one begins.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ticketing_peer::{ClusterId, Party, Peer};
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::calls::{Form, Founder, Hello, encode, kind};
use crate::life::hello;
use crate::node::Inner;
use crate::slots::Slots;
use crate::standing::Stage;
use crate::types::{Member, NodeId};

/// How long a process may take to do what it is told.
const PATIENCE: Duration = Duration::from_secs(6);

/// How a cluster is to begin.
#[derive(Clone, Debug)]
pub struct Init {
    /// All places.
    pub slots: Slots,
    /// How to talk to them.
    pub peer: ticketing_peer::Config,
    /// Tokens begin above this one, or at the wall clock, whichever is more.
    pub token_floor: u64,
    /// Whether the nodes of a cluster that has ended are to begin a new one.
    pub new_identity: bool,
    /// How long to wait until a process answers in every place.
    pub wait: Duration,
}

/// Why a cluster was not initialised.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Somebody does not answer.
    #[error(
        "node {name} does not answer at {address}: {problem}. Start the servers of all nodes, then initialise"
    )]
    Unreachable {
        /// The node.
        name: String,
        /// Where it was looked for.
        address: String,
        /// What happened.
        problem: String,
    },
    /// Somebody was configured otherwise.
    #[error("node {name} was configured with other nodes ({theirs}): give every server the same --cluster")]
    OtherSlots {
        /// The node.
        name: String,
        /// The names that it knows.
        theirs: String,
    },
    /// A process that fills another place answers.
    #[error(
        "{address} is meant to be node {name}, but another one answers there: check --cluster and --slot"
    )]
    OtherSlot {
        /// The node.
        name: String,
        /// The address.
        address: String,
    },
    /// There is a cluster already.
    #[error("node {name} is in cluster {identity} already: nothing was changed")]
    Exists {
        /// The node.
        name: String,
        /// Its cluster.
        identity: ClusterId,
    },
    /// There was one, and it has ended.
    #[error(
        "cluster {identity} has ended, as the memory of a majority is lost; --new-identity begins a new one in its place"
    )]
    Ended {
        /// The cluster.
        identity: ClusterId,
    },
    /// There was one, as somebody has noted.
    #[error(
        "node {name} was in cluster {identity}, whose state its process has forgotten. If the others have forgotten it too, that          cluster has ended: --new-identity begins a new one in its place"
    )]
    Used {
        /// The node.
        name: String,
        /// The cluster.
        identity: ClusterId,
    },
    /// Somebody does not take part.
    #[error("node {name} does not take part: {problem}")]
    Refused {
        /// The node.
        name: String,
        /// Why.
        problem: String,
    },
    /// No random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A process that answered in a place.
struct Candidate {
    name: String,
    peer: Peer,
    member: Member,
    hello: Hello,
}

impl Init {
    /// Initialises the cluster and returns its identity.
    ///
    /// # Errors
    /// [`InitError`]; processes that had agreed by then give up after half a minute.
    pub async fn run(&self) -> Result<ClusterId, InitError> {
        let mut candidates = Vec::new();
        let deadline = Instant::now() + self.wait;
        for (slot, place) in self.slots.iter() {
            let peer = Peer::new(place.peer.as_str(), Party::NOBODY, Party::NOBODY, self.peer.clone());
            let hello = loop {
                match hello(&peer).await {
                    Ok(hello) => break hello,
                    Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
                    Err(problem) => {
                        let (name, address) = (place.name.clone(), place.peer.clone());
                        let problem = problem.to_string();
                        return Err(InitError::Unreachable { name, address, problem });
                    }
                }
            };
            let member = Member { slot, peer: place.peer.clone(), client: place.client.clone() };
            candidates.push(Candidate { name: place.name.clone(), peer, member, hello });
        }
        let instead_of = self.judge(&candidates)?;
        let form = self.form(&candidates, instead_of)?;
        let identity = ClusterId(form.cluster.to_be_bytes());
        for candidate in &candidates {
            candidate.tell(kind::FORM, encode(&form)).await?;
        }
        if let Some(first) = candidates.first() {
            first.tell(kind::BEGIN, Vec::new()).await?;
        }
        Ok(identity)
    }

    /// Whether these processes can begin a cluster, and which one it follows.
    fn judge(&self, candidates: &[Candidate]) -> Result<u128, InitError> {
        let names = self.slots.names();
        let mut instead_of = 0;
        for Candidate { name, hello, member, .. } in candidates {
            let name = name.clone();
            let identity = ClusterId(hello.cluster.to_be_bytes());
            if hello.slots != names {
                return Err(InitError::OtherSlots { name, theirs: hello.slots.join(", ") });
            }
            if hello.slot != member.slot {
                return Err(InitError::OtherSlot { name, address: member.peer.clone() });
            }
            match (hello.cluster, hello.over) {
                (0, _) if hello.former != 0 && !self.new_identity => {
                    return Err(InitError::Used { name, identity: ClusterId(hello.former.to_be_bytes()) });
                }
                (0, _) => {}
                (_, false) => return Err(InitError::Exists { name, identity }),
                (_, true) if !self.new_identity => return Err(InitError::Ended { identity }),
                (ended, true) => instead_of = ended,
            }
        }
        Ok(instead_of)
    }

    fn form(&self, candidates: &[Candidate], instead_of: u128) -> Result<Form, InitError> {
        let mut identity = [0; 16];
        getrandom::fill(&mut identity).map_err(InitError::Random)?;
        let founders = candidates.iter().map(|candidate| Founder {
            incarnation: candidate.hello.incarnation,
            member: candidate.member.clone(),
        });
        let floors = candidates.iter().map(|candidate| candidate.hello.token_floor);
        let floor = floors.chain([self.token_floor]).max().unwrap_or(0);
        Ok(Form {
            cluster: u128::from_be_bytes(identity).max(1),
            first_token: wall_clock_token().max(floor.saturating_add(1)),
            founders: founders.collect(),
            instead_of,
            new_identity: self.new_identity,
        })
    }
}

impl Candidate {
    async fn tell(&self, kind: u8, message: Vec<u8>) -> Result<Bytes, InitError> {
        let answer = self.peer.call(kind, message, Instant::now() + PATIENCE).await;
        answer.map_err(|error| InitError::Refused { name: self.name.clone(), problem: error.to_string() })
    }
}

/// The first token of an identity that begins now: milliseconds since 1970, with 20
/// bits for the tokens of each. So it is above those of every earlier identity,
/// unless the clock went back, and fits a signed 64-bit column.
#[must_use]
pub fn wall_clock_token() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).checked_shl(20).unwrap_or(u64::MAX).max(1)
}

impl Inner {
    /// Begins the cluster whose founders have all agreed.
    pub(crate) async fn begin(&self) -> Result<(), String> {
        let running = self.running().ok_or("this process is not a founder")?;
        let form = running.form.as_ref().ok_or("this process is not a founder")?;
        if self.stage() != Stage::Forming {
            return Ok(());
        }
        let members = (1..).zip(&form.founders);
        let members = members.map(|(id, founder): (NodeId, _)| (id, founder.member.clone()));
        let members = members.collect::<std::collections::BTreeMap<_, _>>();
        running.raft.initialize(members).await.map_err(|error| error.to_string())?;
        info!(identity = %running.identity, "the cluster begins");
        Ok(())
    }
}
