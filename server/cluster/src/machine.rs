//! The applied state: what every node has made of the log so far.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, TryStreamExt as _};
use openraft::entry::RaftEntry as _;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, Snapshot};
use ticketing_engine::{Nanos, Office, Replica};
use tokio::task::spawn_blocking;

use crate::durable::{DataDirError, Snapshots};
use crate::image::{BadImage, Image};
use crate::registry::Registry;
use crate::types::{Applied, Command, Entry, LogId, SnapshotMeta, StoredMembership, Types};

pub(crate) type FullSnapshot = openraft::type_config::alias::SnapshotOf<Types, Image>;

/// The applied state. Clones are the same state.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<Mutex<State>>,
    /// `None`: snapshots are gone when the process ends.
    disk: Option<Arc<Snapshots>>,
    clock: fn() -> Nanos,
    hash_seed: [u64; 2],
}

#[derive(Debug)]
struct State {
    image: Image,
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<FullSnapshot>,
}

/// The applied state at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) replica: Replica,
    pub(crate) applied: Option<LogId>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

impl Machine {
    /// A state in which nothing is held.
    pub(crate) fn new(hash_seed: [u64; 2], clock: fn() -> Nanos) -> Self {
        let image = Image { replica: Replica::new(hash_seed), registry: Registry::default() };
        let membership = StoredMembership::default();
        let state = State { image, applied: None, membership, snapshot: None };
        Self { state: Arc::new(Mutex::new(state)), disk: None, clock, hash_seed }
    }

    /// The state that the last snapshot holds.
    pub(crate) fn durable(
        hash_seed: [u64; 2],
        clock: fn() -> Nanos,
        disk: Arc<Snapshots>,
    ) -> Result<Self, DataDirError> {
        let mut machine = Self::new(hash_seed, clock);
        if let Some((path, meta, bytes)) = disk.load()? {
            let image = machine.read(clock(), &bytes);
            let image = image.map_err(|bad| DataDirError::damaged(&path, "the snapshot", bad.to_string()))?;
            machine.lock().install(&meta, image);
        }
        machine.disk = Some(disk);
        Ok(machine)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it is whole at every moment; a node that broke an invariant stops.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as it is now. Cheap: what changes afterwards is copied then.
    pub(crate) fn view(&self) -> View {
        let state = self.lock();
        View { replica: state.image.replica.clone(), applied: state.applied }
    }

    /// The last token that was given out; 0: none yet.
    pub(crate) fn last_token(&self) -> u64 {
        self.lock().image.replica.table().last_token()
    }

    /// Looks at the seats.
    pub(crate) fn registry<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.lock().image.registry)
    }

    /// How many bytes of disk the last snapshot takes.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.bytes())
    }

    /// Keeps a snapshot where it outlives the process, if there is such a place.
    async fn keep(&self, meta: &SnapshotMeta, image: &Image) -> Result<(), io::Error> {
        let Some(disk) = self.disk.clone() else { return Ok(()) };
        let (meta, image, clock) = (meta.clone(), image.clone(), self.clock);
        let kept = spawn_blocking(move || disk.save(&meta, &image.write(clock())));
        kept.await.map_err(io::Error::other)?
    }

    /// Reads a snapshot that was written no later than `now`, a time of this node's clock.
    pub(crate) fn read(&self, now: Nanos, bytes: &[u8]) -> Result<Image, BadImage> {
        Image::read(now, self.hash_seed, bytes)
    }

    fn apply_entry(&self, entry: Entry) -> Result<Applied, io::Error> {
        let mut state = self.lock();
        let log_id = entry.log_id();
        let applied = match entry.payload {
            EntryPayload::Blank => Applied::Done,
            EntryPayload::Membership(membership) => {
                state.membership = StoredMembership::new(Some(log_id), membership);
                Applied::Done
            }
            EntryPayload::Normal(command) => {
                let now = (self.clock)();
                state.image.apply(now, *log_id.leader_id, command).map_err(|broken| {
                    let problem = format!("entry {} of the log: {broken}", log_id.index);
                    io::Error::new(io::ErrorKind::InvalidData, problem)
                })?
            }
        };
        state.applied = Some(log_id);
        Ok(applied)
    }
}

impl State {
    fn install(&mut self, meta: &SnapshotMeta, image: Image) {
        self.image = image.clone();
        (self.applied, self.membership) = (meta.last_log_id, meta.last_membership.clone());
        self.snapshot = Some(Snapshot { meta: meta.clone(), snapshot: image });
    }
}

impl Image {
    fn apply(
        &mut self,
        now: Nanos,
        entry_term: u64,
        command: Command,
    ) -> Result<Applied, ticketing_engine::Broken> {
        let done = match command {
            Command::Office { term, run, first_token } => {
                self.replica.begin(entry_term, Office { term, run }, first_token)
            }
            Command::Batch { term, run, seq, record, born } => {
                let nothing = bytes::Bytes::from_static(&[1]);
                let record =
                    if fault!(AppliesNothingOfSomeBatches) && seq % 3 == 0 { nothing } else { record };
                self.replica.apply(born.since(now), entry_term, Office { term, run }, seq, &record)?
            }
            Command::Seat { incarnation, member } => {
                return Ok(Applied::Seated(self.registry.seat(incarnation, member)));
            }
        };
        Ok(if done { Applied::Done } else { Applied::Skipped })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let applied = self.apply_entry(entry)?;
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let state = self.lock();
        let meta = SnapshotMeta { last_log_id: state.applied, last_membership: state.membership.clone() };
        Builder { machine: self.clone(), snapshot: Snapshot { meta, snapshot: state.image.clone() } }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> Result<(), io::Error> {
        self.keep(meta, &image).await?;
        self.lock().install(meta, image);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<FullSnapshot>, io::Error> {
        Ok(self.lock().snapshot.clone())
    }
}

/// Holds the state at one moment.
#[derive(Debug)]
pub(crate) struct Builder {
    machine: Machine,
    snapshot: FullSnapshot,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> Result<FullSnapshot, io::Error> {
        let Snapshot { meta, snapshot } = &self.snapshot;
        self.machine.keep(meta, snapshot).await?;
        let mut state = self.machine.lock();
        // One from the leader may have come in the meantime.
        if state.snapshot.as_ref().is_none_or(|known| known.meta.last_log_id <= meta.last_log_id) {
            state.snapshot = Some(self.snapshot.clone());
        }
        drop(state);
        Ok(self.snapshot.clone())
    }
}

impl View {
    /// The index of the last entry that is applied; 0: none.
    pub(crate) fn index(&self) -> u64 {
        self.applied.map_or(0, |applied| applied.index)
    }
}
