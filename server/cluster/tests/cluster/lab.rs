//! Clusters of nodes in one process.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use ticketing_cluster::{
    Alone, Cluster, Config, DataDirError, Init, InitError, LOG_MEMORY, Slots, Stage, StartError, Status,
    Timing,
};
use ticketing_engine::{Effect, Fate, Office, record};
use ticketing_peer::Secret;
use tokio::runtime::Runtime;

/// How long anything may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time, as nobody here knows it but the tests.
pub(crate) fn clock() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    1_000_000_000_000 + u64::try_from(since.as_nanos()).unwrap()
}

/// What the clock of a node shows beyond that: clocks of nodes have nothing in common.
const fn beyond(slot: u64) -> u64 {
    slot * 7_000_000_000_000
}

fn clock_of<const SLOT: u64>() -> u64 {
    beyond(SLOT) + clock()
}

pub(crate) const CLOCKS: [fn() -> u64; 5] =
    [clock_of::<0>, clock_of::<1>, clock_of::<2>, clock_of::<3>, clock_of::<4>];

fn peer_config() -> ticketing_peer::Config {
    let secret = Secret::new(b"a secret for the tests").unwrap();
    ticketing_peer::Config { secret, tls: None, limits: ticketing_peer::Limits::default() }
}

/// What a node remembers when its process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Nothing.
    Nothing,
    /// Which identity its place was in.
    Marker,
    /// Everything.
    Log,
}

pub(crate) struct Node {
    pub(crate) cluster: Cluster,
    pub(crate) runtime: Option<Runtime>,
}

impl Node {
    fn start(
        slots: &Slots,
        slot: u8,
        listener: TcpListener,
        memory: Memory,
        folder: &Path,
        log_memory: usize,
    ) -> Result<Self, StartError> {
        let runtime = runtime();
        let config = Config {
            slots: slots.clone(),
            slot,
            peer: peer_config(),
            timing: Timing::default(),
            clock: CLOCKS[usize::from(slot)],
            hash_seed: [1, u64::from(slot)],
            data_dir: (memory == Memory::Log).then(|| folder.to_owned()),
            log_memory,
            state_dir: (memory == Memory::Marker).then(|| folder.to_owned()),
        };
        let cluster = runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            Cluster::start(config, listener).await
        })?;
        Ok(Self { cluster, runtime: Some(runtime) })
    }

    /// A server alone.
    pub(crate) fn alone(folder: &Path) -> Result<Self, StartError> {
        let runtime = runtime();
        let (data_dir, client) = (folder.to_owned(), "127.0.0.1:1".to_owned());
        let alone = Alone { data_dir, client, clock, hash_seed: [3, 4] };
        let cluster = runtime.block_on(Cluster::alone(alone))?;
        Ok(Self { cluster, runtime: Some(runtime) })
    }

    /// The same, in the directory of one that has just ended and may still be closing it.
    pub(crate) fn alone_again(folder: &Path) -> Result<Self, StartError> {
        eventually("its directory is free again", || {
            Self::alone(folder).map_or_else(unless_in_use, |node| Some(Ok(node)))
        })
    }

    /// The office that it comes to.
    pub(crate) fn in_office(&self) -> Office {
        eventually("it is in office", || self.office())
    }

    pub(crate) fn status(&self) -> Status {
        self.cluster.status()
    }

    pub(crate) fn office(&self) -> Option<Office> {
        self.cluster.standing().borrow().office
    }

    pub(crate) fn stage(&self) -> Stage {
        self.cluster.standing().borrow().stage
    }

    pub(crate) fn propose(&self, office: Office, seq: u64, effects: &[Effect<'_>]) -> mpsc::Receiver<Fate> {
        let mut bytes = Vec::new();
        record::encode(effects.iter().copied(), &mut bytes);
        let (sender, told) = mpsc::channel();
        let runtime = self.runtime.as_ref().unwrap();
        let proposed = self.cluster.propose(office, seq, Bytes::from(bytes), move |fate| {
            let _ = sender.send(fate);
        });
        runtime.block_on(proposed);
        told
    }
}

/// Which keys must be held, by which token.
#[derive(Debug, Default)]
pub(crate) struct Held {
    tokens: BTreeMap<String, u64>,
    /// Nobody knows what became of these.
    doubtful: BTreeMap<String, u64>,
    keys: u64,
}

impl Held {
    pub(crate) fn assert_is_held_by(&self, node: &Node) {
        let replica = node.cluster.replica().unwrap();
        let table = replica.table();
        for (key, token) in &self.tokens {
            let held = table.get(key.as_bytes()).unwrap_or_else(|| panic!("{key} is free"));
            assert_eq!(held.token, *token);
        }
        for held in table.locks() {
            let key = std::str::from_utf8(held.key).unwrap();
            let token = self.tokens.get(key).or(self.doubtful.get(key));
            assert_eq!(token, Some(&held.token), "{key} should be free");
        }
        assert!(self.tokens.values().all(|token| *token < table.next_token()));
    }
}

impl Node {
    /// Proposes many batches of grants and releases at the same time; returns how
    /// many of them were applied.
    pub(crate) fn fill(&self, held: &mut Held, batches: u64) -> u64 {
        let office = self.in_office();
        let replica = self.cluster.replica().unwrap();
        let place = replica.place();
        let next = place.first_token.max(replica.table().next_token());
        let mut under_way = Vec::new();
        for batch in 0..batches {
            let (key, token) = (format!("key {}", held.keys), next + batch);
            held.keys += 1;
            let mut effects = vec![grant(key.as_bytes(), token)];
            let is_released = held.keys.is_multiple_of(3);
            if is_released {
                effects.push(Effect::Release { key: key.as_bytes(), token });
            }
            let told = self.propose(office, place.batches + batch + 1, &effects);
            under_way.push((key, token, is_released, told));
        }
        let mut applied = 0;
        for (key, token, is_released, told) in under_way {
            match fate(&told) {
                Fate::Applied if is_released => applied += 1,
                Fate::Applied => {
                    applied += 1;
                    held.tokens.insert(key, token);
                }
                Fate::Unknown if !is_released => drop(held.doubtful.insert(key, token)),
                Fate::Refused | Fate::Unknown => {}
            }
        }
        applied
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(5));
    }
}

pub(crate) struct Lab {
    pub(crate) slots: Slots,
    pub(crate) nodes: Vec<Option<Node>>,
    memory: Memory,
    folder: PathBuf,
    log_memory: usize,
    _temporary: Option<TempDir>,
}

impl Lab {
    pub(crate) fn blank(count: usize) -> Self {
        Self::with(count, Memory::Nothing)
    }

    pub(crate) fn with(count: usize, memory: Memory) -> Self {
        Self::keeping(count, memory, LOG_MEMORY)
    }

    /// One whose nodes keep so many bytes of the log behind a snapshot.
    pub(crate) fn keeping(count: usize, memory: Memory, log_memory: usize) -> Self {
        let (slots, listeners) = places(count);
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        let _temporary = Some(temporary);
        let mut lab = Self { slots, nodes: Vec::new(), memory, folder, log_memory, _temporary };
        for (slot, listener) in listeners.into_iter().enumerate() {
            let node = lab.start(slot, listener).unwrap();
            lab.nodes.push(Some(node));
        }
        lab
    }

    /// The cluster that was left in this folder.
    pub(crate) fn found(slots: Slots, folder: &Path) -> Self {
        let nodes = slots.iter().map(|_| None).collect();
        let folder = folder.to_owned();
        let (memory, log_memory) = (Memory::Log, LOG_MEMORY);
        let mut lab = Self { slots, nodes, memory, folder, log_memory, _temporary: None };
        lab.restart_all();
        lab
    }

    fn start(&self, slot: usize, listener: TcpListener) -> Result<Node, StartError> {
        let folder = self.folder(slot);
        let slot = u8::try_from(slot).unwrap();
        Node::start(&self.slots, slot, listener, self.memory, &folder, self.log_memory)
    }

    /// Where a node keeps what it remembers.
    pub(crate) fn folder(&self, slot: usize) -> PathBuf {
        self.folder.join(slot.to_string())
    }

    pub(crate) fn begun(count: usize) -> Self {
        let lab = Self::blank(count);
        lab.init(false).unwrap();
        lab
    }

    pub(crate) fn init(&self, new_identity: bool) -> Result<String, InitError> {
        let init = Init {
            slots: self.slots.clone(),
            peer: peer_config(),
            token_floor: 0,
            new_identity,
            wait: Duration::from_secs(5),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(init.run()).map(|identity| identity.to_string())
    }

    pub(crate) fn up(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    pub(crate) fn node(&self, slot: usize) -> &Node {
        self.nodes[slot].as_ref().unwrap()
    }

    pub(crate) fn kill(&mut self, slot: usize) {
        self.nodes[slot] = None;
    }

    /// All at once.
    pub(crate) fn kill_all(&mut self) {
        let ends = self.nodes.iter_mut().filter_map(Option::take);
        let ends = ends.map(|node| std::thread::spawn(|| drop(node))).collect::<Vec<_>>();
        ends.into_iter().for_each(|end| end.join().unwrap());
    }

    pub(crate) fn restart(&mut self, slot: usize) {
        self.try_restart(slot).unwrap();
    }

    pub(crate) fn restart_all(&mut self) {
        (0..self.nodes.len()).for_each(|slot| self.restart(slot));
    }

    pub(crate) fn try_restart(&mut self, slot: usize) -> Result<(), StartError> {
        let address =
            self.slots.get(u8::try_from(slot).unwrap()).unwrap().peer.parse::<SocketAddr>().unwrap();
        let node = eventually("its directory is free again", || {
            let listener = eventually("the address is free again", || bind_again(address));
            self.start(slot, listener).map_or_else(unless_in_use, |node| Some(Ok(node)))
        });
        self.nodes[slot] = Some(node?);
        Ok(())
    }

    /// Has so many batches of grants and releases committed; on a busy machine the
    /// leader may change in the midst of it.
    pub(crate) fn fill(&self, held: &mut Held, batches: u64) {
        let mut left = batches;
        while left > 0 {
            left -= self.node(self.leader().0).fill(held, left);
        }
    }

    /// Waits until all nodes that are up have applied the same.
    pub(crate) fn wait_for_agreement(&self) -> Status {
        eventually("all nodes hold the same", || {
            let status = self.node(self.leader().0).status();
            let same = |node: &Node| {
                let other = node.status();
                (other.applied, &other.state_hash) == (status.applied, &status.state_hash)
            };
            self.up().all(same).then(|| status.clone())
        })
    }

    /// From when a node counts the lease of a key, as [`clock`] tells it.
    pub(crate) fn since(&self, slot: usize, key: &[u8]) -> Option<u64> {
        let replica = self.node(slot).cluster.replica()?;
        Some(replica.table().get(key)?.since - beyond(slot as u64))
    }

    /// Waits until everybody knows that a node has a vote: then another one may end.
    pub(crate) fn wait_for_vote(&self, slot: usize) {
        wait("everybody knows that it has a vote", || {
            let node = self.node(slot).status().node;
            let knows = |status: &Status| {
                // The old one has no say any more.
                status.learners.is_empty()
                    && status.voters.len() == self.nodes.len()
                    && status.voters.iter().any(|voter| Some(voter.node) == node)
            };
            node.is_some() && self.up().all(|other| knows(&other.status()))
        });
    }

    /// The slot of the node that is in office.
    pub(crate) fn leader(&self) -> (usize, Office) {
        eventually("somebody is in office", || {
            let mut nodes = self.nodes.iter().enumerate();
            nodes.find_map(|(slot, node)| Some((slot, node.as_ref()?.office()?)))
        })
    }
}

/// Addresses that nobody has, and listeners that keep them.
pub(crate) fn places(count: usize) -> (Slots, Vec<TcpListener>) {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect::<Vec<_>>();
    let text = listeners.iter().enumerate().map(|(index, listener)| {
        format!("n{index}={}@127.0.0.1:{}", listener.local_addr().unwrap(), index + 1)
    });
    let slots = text.collect::<Vec<_>>().join(",").parse::<Slots>().unwrap();
    (slots, listeners)
}

/// As a server does.
fn bind_again(address: SocketAddr) -> Option<TcpListener> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::net::TcpListener::bind(address).await.ok()?.into_std().ok() })
}

/// What has ended may still be closing its directory.
fn unless_in_use<T>(error: StartError) -> Option<Result<T, StartError>> {
    let is_in_use = matches!(error, StartError::DataDir(DataDirError::InUse(_)));
    (!is_in_use).then_some(Err(error))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

pub(crate) fn grant(key: &[u8], token: u64) -> Effect<'_> {
    Effect::Grant { key, owner: 1, token, lease_secs: 250 }
}

pub(crate) fn fate(told: &mpsc::Receiver<Fate>) -> Fate {
    told.recv_timeout(PATIENCE).expect("every batch has a fate")
}
