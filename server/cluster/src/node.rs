//! A process in a cluster: what all its tasks share, and how the rest of the
//! server uses it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState};
use ticketing_engine::{Fate, Nanos, Office, Replica, Seq};
use ticketing_peer::{ClusterId, Party};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::answering::Front;
use crate::calls::{Form, encode, kind};
use crate::durable::{DataDir, DataDirError, Identity, Opened};
use crate::life;
use crate::log::Log;
use crate::machine::Machine;
use crate::marker::{Marker, StateDirError};
use crate::peers::Peers;
use crate::proposal::Proposal;
use crate::slots::{Slot, Slots};
use crate::standing::{Stage, Standing};
use crate::timing::Timing;
use crate::types::{Member, NodeId, Raft};

/// Said of a process whose place is not among those that it was given.
pub(crate) const NO_PLACE: &str = "this place is not configured";

/// What a process of a cluster needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// All places.
    pub slots: Slots,
    /// The index of the place that this process fills.
    pub slot: u8,
    /// How it talks to its peers.
    pub peer: ticketing_peer::Config,
    /// How often the leader is heard, and how soon it is missed.
    pub timing: Timing,
    /// A monotonic clock that goes on during suspend.
    pub clock: fn() -> Nanos,
    /// Random: it keeps clients from choosing keys that collide in a table.
    pub hash_seed: [u64; 2],
    /// Where the node keeps what it must not forget, so that it comes back as itself;
    /// `None`: it forgets everything when its process ends.
    pub data_dir: Option<PathBuf>,
    /// Where a place notes which identity it was in, so that a second one is not begun
    /// by mistake, and the tokens of one that is lie above the earlier ones.
    pub state_dir: Option<PathBuf>,
    /// Bytes of the log that stay in memory after a snapshot, so that a node that was
    /// away for a moment catches up without one; [`LOG_MEMORY`](crate::LOG_MEMORY) is a good measure.
    pub log_memory: usize,
}

/// Why a process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// Its data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Its state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// Something that should not happen.
    #[error("what is on disk cannot be opened: {0}")]
    Failed(String),
}

/// A process of a cluster. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Cluster(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: Config,
    /// No two processes have the same, but those that are the same node.
    pub(crate) incarnation: u128,
    pub(crate) data_dir: Option<Arc<DataDir>>,
    pub(crate) marker: Option<Arc<Marker>>,
    pub(crate) standing: watch::Sender<Standing>,
    /// Connections to whoever answers, under no name.
    pub(crate) strangers: Peers,
    running: Mutex<Option<Arc<Running>>>,
    pub(crate) forms: mpsc::Sender<(Form, oneshot::Sender<Result<(), String>>)>,
}

/// A node that takes part, or is about to.
pub(crate) struct Running {
    pub(crate) identity: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) raft: Raft,
    pub(crate) machine: Machine,
    pub(crate) log: Log,
    pub(crate) peers: Peers,
    /// The cluster in which this node is a founder.
    pub(crate) form: Option<Form>,
    /// The office that was given up because a batch of it was refused.
    pub(crate) renounced: watch::Sender<Option<Office>>,
    /// Until when which place may go to a new process although the old one lives.
    pub(crate) takeover: Mutex<Option<(u8, Instant)>>,
    /// Somebody asked for a place.
    pub(crate) seats_changed: Notify,
    /// A peer has said that this node is none any more.
    pub(crate) superseded: Arc<Notify>,
    /// When a leader was last heard.
    pub(crate) heard: Mutex<Instant>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("standing", &*self.standing.borrow()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts a process that answers its peers on `listener`. If its data directory
    /// is a node's, it is that node. Otherwise it waits until a cluster is initialised,
    /// or comes back into the one that its peers are in.
    ///
    /// # Errors
    /// [`StartError`]: what is on disk cannot be used, and was not changed.
    pub async fn start(config: Config, listener: TcpListener) -> Result<Self, StartError> {
        let (config, disk) = on_disk(config, DataDir::find).await?;
        // Who it is must be known before anybody asks: a node that says that it is none
        // has lost its memory.
        let (cluster, life) = Self::with(config, disk)?;
        let front = Arc::new(Front(Arc::clone(&cluster.0)));
        let peer = cluster.0.config.peer.clone();
        tokio::spawn(ticketing_peer::serve(listener, front, peer, std::future::pending()));
        tokio::spawn(life);
        Ok(cluster)
    }

    /// A process as it is found on disk, and its life, which is yet to be lived.
    pub(crate) fn with(
        config: Config,
        disk: Disk,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), StartError> {
        let Disk { data_dir, marker, opened } = disk;
        let mut standing = Standing::default();
        let incarnation = match &opened {
            Some(Opened { identity, .. }) => {
                standing.stage = Stage::Forming;
                standing.identity = Some(identity.cluster_id());
                standing.node = Some(identity.node);
                identity.incarnation
            }
            None => random().map_err(StartError::Random)?,
        };
        let (forms, formed) = mpsc::channel(1);
        let inner = Arc::new(Inner {
            strangers: Peers::new(Party::NOBODY, config.peer.clone()),
            incarnation,
            data_dir,
            marker,
            standing: watch::Sender::new(standing),
            running: Mutex::new(None),
            forms,
            config,
        });
        let life = life::live(Arc::clone(&inner), formed, opened);
        Ok((Self(inner), life))
    }

    /// Where this process stands, now and whenever it changes.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// The applied state. In an office it is what its engine begins with, as long
    /// as that has proposed nothing.
    #[must_use]
    pub fn replica(&self) -> Option<Replica> {
        Some(self.0.running()?.machine.view().replica)
    }

    /// Proposes a batch; `told` learns what became of it, exactly once. Batches of an
    /// office are numbered from 1 without a gap, and applied in that order. As long as
    /// the office holds, a batch waits for a majority.
    pub async fn propose(
        &self,
        office: Office,
        seq: Seq,
        record: Bytes,
        told: impl FnOnce(Fate) + Send + Sync + 'static,
    ) {
        let proposal = Proposal { inner: Arc::clone(&self.0), office, seq, record, told: Box::new(told) };
        proposal.send().await;
    }

    /// Gives an office up, because a batch of it was refused: what was decided on
    /// top of it is void. The node takes another office if it still leads.
    pub fn renounce(&self, office: Office) {
        if let Some(running) = self.0.running() {
            running.renounced.send_replace(Some(office));
        }
    }

    /// Hands leadership to another node, if this one leads. Returns when another
    /// one leads or the time is over.
    pub async fn hand_over(&self, time: Duration) {
        let Some(running) = self.0.running() else { return };
        let deadline = Instant::now() + time;
        let leads = || running.raft.server_metrics().borrow_watched().current_leader == Some(running.node);
        while leads() && Instant::now() < deadline {
            if let Some(heir) = running.best_heir() {
                // It may refuse, because it is not there yet: then it is asked again.
                let _ = running.raft.trigger().transfer_leader(heir).await;
            }
            let asked_again = Instant::now() + Duration::from_millis(50);
            while leads() && Instant::now() < asked_again.min(deadline) {
                sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// How long it is since a majority was seen, by this node or through its leader.
    #[must_use]
    pub fn out_of_touch(&self) -> Duration {
        self.0.running().map_or(Duration::MAX, |running| running.out_of_touch())
    }

    /// Lets a new process take a place for the next ten minutes although the old one
    /// lives. Any node can be asked; it asks the leader.
    ///
    /// # Errors
    /// Why not, in words: another node is down, there is no such place, no leader.
    pub async fn allow_replacement(&self, slot: &str) -> Result<(), String> {
        let index = self.0.config.slots.index_of(slot);
        let index = index.ok_or_else(|| format!("there is no node {slot:?} in this cluster"))?;
        let running = self.0.running().ok_or("this process is in no cluster")?;
        let leader = self.0.standing.borrow().leader.clone().ok_or("no leader is known")?;
        if leader.node == running.node {
            return self.0.allow_takeover(index);
        }
        let member = running.member(leader.node).ok_or("no leader is known")?;
        let peer = running.peers.to(&member, leader.node);
        let deadline = Instant::now() + Duration::from_secs(5);
        let asked = peer.call(kind::REPLACE, encode(&index), deadline).await;
        asked.map(drop).map_err(|error| format!("the leader: {error}"))
    }

    /// Completes when this process must end; [`Standing::stage`] and the log say why.
    pub async fn ended(&self) {
        let mut standing = self.standing();
        let ended = |standing: &Standing| matches!(standing.stage, Stage::Superseded | Stage::Broken);
        // It lives as long as this handle.
        let _ = standing.wait_for(ended).await;
    }

    /// Ends this node's part in its cluster.
    pub async fn shutdown(&self) {
        if let Some(running) = self.0.running() {
            // A node that has ended already is as good.
            let _ = running.raft.shutdown().await;
            running.log.close().await;
        }
    }
}

/// What a process has on disk.
#[derive(Debug)]
pub(crate) struct Disk {
    data_dir: Option<Arc<DataDir>>,
    marker: Option<Arc<Marker>>,
    opened: Option<Opened>,
}

/// Opens what is on disk, which may take a while.
pub(crate) async fn on_disk(
    config: Config,
    find: impl FnOnce(&DataDir, &Config) -> Result<Option<Opened>, DataDirError> + Send + 'static,
) -> Result<(Config, Disk), StartError> {
    let open = move || {
        let marker = config.state_dir.as_deref().map(Marker::open).transpose()?.map(Arc::new);
        let data_dir = config.data_dir.as_deref().map(DataDir::take).transpose()?.map(Arc::new);
        let opened = match &data_dir {
            Some(data_dir) => find(data_dir, &config)?,
            None => None,
        };
        Ok((config, Disk { data_dir, marker, opened }))
    };
    spawn_blocking(open).await.unwrap_or_else(|error| Err(StartError::Failed(error.to_string())))
}

pub(crate) fn random() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

impl Config {
    /// Whoever fills a place, as a member.
    pub(crate) fn member(&self, slot: u8) -> Option<Member> {
        let Slot { peer, client, .. } = self.slots.get(slot)?.clone();
        Some(Member { slot, peer, client })
    }
}

impl Inner {
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_running(&self, running: Option<Arc<Running>>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    /// Changes what the rest of the server sees.
    pub(crate) fn stand(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            let before = standing.clone();
            change(standing);
            *standing != before
        });
    }

    pub(crate) fn stage(&self) -> Stage {
        self.standing.borrow().stage
    }

    /// The place that this process fills.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.config.slots.get(self.config.slot)
    }

    /// The identity of the node that this process becomes.
    pub(crate) fn identity(
        &self,
        cluster: u128,
        node: NodeId,
        form: Option<Form>,
    ) -> Result<Identity, String> {
        let member = self.member().ok_or(NO_PLACE)?;
        let (incarnation, slots) = (self.incarnation, self.config.slots.names());
        Ok(Identity { cluster, node, incarnation, member, slots, form })
    }

    /// This process as a member.
    pub(crate) fn member(&self) -> Option<Member> {
        self.config.member(self.config.slot)
    }

    /// Everybody else's place.
    pub(crate) fn others(&self) -> impl Iterator<Item = (u8, &Slot)> {
        self.config.slots.iter().filter(|(index, _)| *index != self.config.slot)
    }
}

impl Running {
    /// Whether a node whose cluster does not begin may end and be forgotten: nobody
    /// relies on what it has promised.
    pub(crate) fn may_give_up(&self) -> bool {
        !self.log.is_durable() || self.log.is_pristine()
    }

    /// Which of the members this is.
    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&node).cloned()
    }

    /// How long it is since a majority was seen: by itself if this node leads, or
    /// through its leader.
    pub(crate) fn out_of_touch(&self) -> Duration {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        match metrics.last_quorum_acked.as_ref().filter(|_| metrics.state == ServerState::Leader) {
            Some(acknowledged) => acknowledged.elapsed(),
            None => heard,
        }
    }

    /// Of the voters that were heard of lately and have the log, but for what is on its
    /// way, the one that has been a member for longest: clients may not yet have found
    /// their way to one that has just come.
    pub(crate) fn best_heir(&self) -> Option<NodeId> {
        const ON_ITS_WAY: u64 = 64;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let replication = metrics.replication.as_ref()?;
        let heard = |id: NodeId| Some(metrics.heartbeat.as_ref()?.get(&id)?.as_ref()?.elapsed());
        let has = |id: NodeId| Some(replication.get(&id)?.as_ref()?.index);
        let voters = metrics.membership_config.membership().voter_ids().filter(|&id| id != self.node);
        let heirs = voters.filter(|&id| heard(id).is_some_and(|ago| ago < Duration::from_secs(1)));
        let heirs = heirs.filter_map(|id| Some((id, has(id)?))).collect::<Vec<_>>();
        let most = heirs.iter().map(|(_, index)| *index).max()?;
        heirs.into_iter().filter(|(_, index)| index + ON_ITS_WAY >= most).map(|(id, _)| id).min()
    }
}
