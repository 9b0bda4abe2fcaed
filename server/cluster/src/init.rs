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
use futures_util::future::try_join_all;
use ticketing_peer::{ClusterId, Party, Peer};
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::calls::{Form, Founder, Hello, encode, kind};
use crate::life::hello;
use crate::node::Inner;
use crate::slots::Slots;
use crate::standing::Stage;
use crate::types::{Member, NodeId};

/// How long a process may take to do what it is told; it has an answer before that.
const PATIENCE: Duration = Duration::from_secs(20);

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
        "node {name} was in cluster {identity}, whose state its process has forgotten. If the others have forgotten it too, that \
         cluster has ended: --new-identity begins a new one in its place"
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
        let candidates = self.find().await?;
        let identity = self.agree(&candidates).await?;
        if let Some(first) = candidates.first() {
            first.tell(kind::BEGIN, Vec::new()).await?;
        }
        Ok(identity)
    }

    /// Asks the process in every place who it is.
    async fn find(&self) -> Result<Vec<Candidate>, InitError> {
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
        Ok(candidates)
    }

    /// Makes all of them founders of a new cluster, which does not yet begin.
    async fn agree(&self, candidates: &[Candidate]) -> Result<ClusterId, InitError> {
        let instead_of = self.judge(candidates)?;
        let form = self.form(candidates, instead_of)?;
        // All at once, as each has a disk to write to, and none waits for the others for ever.
        try_join_all(candidates.iter().map(|candidate| candidate.tell(kind::FORM, encode(&form)))).await?;
        Ok(ClusterId(form.cluster.to_be_bytes()))
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
        let first_token = wall_clock_token().max(floor.saturating_add(1));
        Ok(Form {
            cluster: u128::from_be_bytes(identity).max(1),
            first_token: if fault!(NewIdentityBeginsAtOne) { 1 } else { first_token },
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
        if self.config.slots.len() == 1 {
            info!(domain = %running.identity, "a new data directory, and so a new fencing domain");
        } else {
            info!(identity = %running.identity, "the cluster begins");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::net::TcpListener;

    use super::*;
    use crate::durable::DataDirError;
    use crate::node::StartError;
    use crate::node::{Cluster, Config};
    use crate::timing::Timing;

    fn clock() -> u64 {
        5_000_000_000_000
    }

    fn peer_config() -> ticketing_peer::Config {
        let secret = ticketing_peer::Secret::new(b"a secret for the tests").unwrap();
        ticketing_peer::Config { secret, tls: None, limits: ticketing_peer::Limits::default() }
    }

    async fn start(slots: &Slots, slot: u8, listener: TcpListener, folder: &Path) -> Cluster {
        try_start(slots, slot, listener, folder).await.unwrap()
    }

    async fn try_start(
        slots: &Slots,
        slot: u8,
        listener: TcpListener,
        folder: &Path,
    ) -> Result<Cluster, StartError> {
        let config = Config {
            slots: slots.clone(),
            slot,
            peer: peer_config(),
            timing: Timing::default(),
            clock,
            hash_seed: [1, 2],
            data_dir: Some(folder.join(slot.to_string())),
            log_memory: crate::LOG_MEMORY,
            state_dir: None,
        };
        Cluster::start(config, listener).await
    }

    /// Three processes with data directories, of which the last has a runtime of its own.
    struct Three {
        slots: Slots,
        folder: tempfile::TempDir,
        two: Vec<Cluster>,
        third: Option<(Cluster, tokio::runtime::Runtime)>,
    }

    impl Three {
        async fn blank() -> Self {
            let mut listeners = Vec::new();
            for _ in 0..3 {
                listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
            }
            let text = listeners.iter().enumerate().map(|(index, listener)| {
                format!("n{index}={}@127.0.0.1:{}", listener.local_addr().unwrap(), index + 1)
            });
            let slots = text.collect::<Vec<_>>().join(",").parse::<Slots>().unwrap();
            let folder = tempfile::tempdir().unwrap();
            drop(listeners.pop());
            let mut two = Vec::new();
            for (slot, listener) in (0..).zip(listeners) {
                two.push(start(&slots, slot, listener, folder.path()).await);
            }
            let mut three = Self { slots, folder, two, third: None };
            three.start_third().await;
            three
        }

        async fn start_third(&mut self) {
            let (slots, folder) = (self.slots.clone(), self.folder.path().to_owned());
            let started = tokio::task::spawn_blocking(move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
                let runtime = runtime.unwrap();
                let cluster = runtime.block_on(async {
                    let address = slots.get(2).unwrap().peer.clone();
                    loop {
                        let Ok(listener) = TcpListener::bind(&address).await else {
                            sleep(Duration::from_millis(10)).await;
                            continue;
                        };
                        match try_start(&slots, 2, listener, &folder).await {
                            // What has ended may still be closing it.
                            Err(StartError::DataDir(DataDirError::InUse(_))) => {
                                sleep(Duration::from_millis(10)).await;
                            }
                            started => break started.unwrap(),
                        }
                    }
                });
                (cluster, runtime)
            });
            self.third = Some(started.await.unwrap());
        }

        fn end_third(&mut self) {
            let (cluster, runtime) = self.third.take().unwrap();
            runtime.shutdown_background();
            drop(cluster);
        }

        fn stages(&self) -> Vec<Stage> {
            let third = self.third.iter().map(|(cluster, _)| cluster);
            self.two.iter().chain(third).map(|cluster| cluster.standing().borrow().stage).collect()
        }

        fn init(&self) -> Init {
            let wait = Duration::from_secs(5);
            Init { slots: self.slots.clone(), peer: peer_config(), token_floor: 0, new_identity: false, wait }
        }

        async fn wait_for(&self, stage: Stage) {
            let deadline = Instant::now() + Duration::from_secs(60);
            while self.stages().iter().any(|other| *other != stage) {
                assert!(Instant::now() < deadline, "not {stage:?}: {:?}", self.stages());
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_founder_that_ends_before_the_cluster_begins_comes_back_as_one() {
        let mut three = Three::blank().await;
        let init = three.init();
        let candidates = init.find().await.unwrap();
        let identity = init.agree(&candidates).await.unwrap();
        three.end_third();
        three.start_third().await;
        three.wait_for(Stage::Forming).await;
        candidates[0].tell(kind::BEGIN, Vec::new()).await.unwrap();
        three.wait_for(Stage::Member).await;
        let (third, _) = three.third.as_ref().unwrap();
        assert_eq!(
            (third.standing().borrow().identity, third.standing().borrow().node),
            (Some(identity), Some(3))
        );
        three.end_third();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_formation_that_was_not_completed_is_forgotten() {
        let mut three = Three::blank().await;
        let init = three.init();
        init.agree(&init.find().await.unwrap()).await.unwrap();
        assert!(matches!(init.run().await, Err(InitError::Exists { .. })), "not while it may still begin");
        three.wait_for(Stage::Broken).await;
        three.end_third();
        three.start_third().await;
        assert_eq!(three.stages().pop(), Some(Stage::Blank), "it may be initialised again");
        three.end_third();
    }
}
