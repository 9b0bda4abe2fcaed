//! A disk that can be slow, full, or broken, and whose crash states can be listed.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use redb::StorageBackend;

use super::{identity, same};
use crate::durable::store::{Kept, Store, builder};
use crate::durable::watermark::Watermark;
use crate::durable::{DataDirError, Identity};

/// Hardware writes this much or nothing.
const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What whoever reads sees.
    seen: Vec<u8>,
    /// What a loss of power leaves for certain.
    synced: Vec<u8>,
    since: Vec<Change>,
    syncs: Vec<Sync>,
    acknowledged: u64,
    sync_takes: Duration,
    sync_fails: bool,
    is_held: bool,
    most: Option<u64>,
}

/// What a sync had to do.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    before: Vec<u8>,
    changes: Vec<Change>,
    /// What had been acknowledged by then, as the test counts.
    pub(super) acknowledged: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Length(u64),
    Write(u64, Vec<u8>),
}

impl Change {
    fn to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(usize::try_from(*length).unwrap(), 0),
            Self::Write(offset, data) => {
                let offset = usize::try_from(*offset).unwrap();
                bytes[offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl Disk {
    pub(super) fn holding(bytes: Vec<u8>) -> Self {
        let state = State { seen: bytes.clone(), synced: bytes, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn synced(&self) -> Vec<u8> {
        self.lock().synced.clone()
    }

    pub(super) fn seen(&self) -> Vec<u8> {
        self.lock().seen.clone()
    }

    /// Notes how much has been acknowledged.
    pub(super) fn acknowledge(&self, acknowledged: u64) {
        self.lock().acknowledged = acknowledged;
    }

    pub(super) fn syncs(&self) -> Vec<Sync> {
        self.lock().syncs.clone()
    }

    pub(super) fn set_sync(&self, takes: Duration, fails: bool) {
        let mut state = self.lock();
        (state.sync_takes, state.sync_fails) = (takes, fails);
    }

    /// Syncs do not end until this is taken back.
    pub(super) fn hold(&self, is_held: bool) {
        self.lock().is_held = is_held;
    }

    /// No more than this fits on it.
    pub(super) fn set_most(&self, most: Option<u64>) {
        self.lock().most = most;
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let offset = usize::try_from(offset).unwrap();
        let state = self.lock();
        let bytes = offset.checked_add(out.len()).and_then(|end| state.seen.get(offset..end));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.lock();
        if state.most.is_some_and(|most| len > most) || len > 1 << 32 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Change::Length(len).to(&mut state.seen);
        state.since.push(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let (takes, fails) = {
            let mut state = self.lock();
            let (before, changes) = (state.synced.clone(), std::mem::take(&mut state.since));
            let acknowledged = state.acknowledged;
            state.syncs.push(Sync { before, changes, acknowledged });
            (state.sync_takes, state.sync_fails)
        };
        sleep(takes);
        while self.lock().is_held {
            sleep(Duration::from_millis(1));
        }
        if fails {
            return Err(io::Error::other("the disk is broken"));
        }
        let mut state = self.lock();
        state.synced = state.seen.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.lock();
        if state.most.is_some_and(|most| offset + data.len() as u64 > most) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let change = Change::Write(offset, data.to_vec());
        change.to(&mut state.seen);
        state.since.push(change);
        Ok(())
    }
}

impl Sync {
    /// What a crash can leave that cuts the writes short, in the order in which they
    /// were made: at every byte at which that makes a difference.
    pub(super) fn cut_short(&self, mut look: impl FnMut(&[u8])) {
        let mut bytes = self.before.clone();
        look(&bytes);
        for change in &self.changes {
            match change {
                Change::Length(_) => {
                    change.to(&mut bytes);
                    look(&bytes);
                }
                Change::Write(offset, data) => {
                    let offset = usize::try_from(*offset).unwrap();
                    for (at, &byte) in (offset..).zip(data) {
                        if bytes[at] != byte {
                            bytes[at] = byte;
                            look(&bytes);
                        }
                    }
                }
            }
        }
    }

    /// What a crash can leave of it if the disk writes sectors in whatever order.
    pub(super) fn scrambled(&self, mut chance: impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let lengths = self.changes.iter().filter(|change| matches!(change, Change::Length(_)));
        lengths.for_each(|change| change.to(&mut bytes));
        for change in &self.changes {
            let Change::Write(offset, data) = change else { continue };
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                let offset = usize::try_from(*offset).unwrap() + index * SECTOR;
                if chance() && offset + sector.len() <= bytes.len() {
                    bytes[offset..offset + sector.len()].copy_from_slice(sector);
                }
            }
        }
        bytes
    }
}

/// Makes a node on this disk.
pub(super) fn begin(disk: &Disk, mark: &Path) -> Store {
    let database = builder().create_with_backend(disk.clone()).unwrap();
    Store::begin(&database, Path::new("log.redb"), &identity()).unwrap();
    let watermark = Watermark::open(mark).unwrap().0;
    Store::open(database, Path::new("log.redb"), (watermark, None)).unwrap().0
}

/// What a node finds on a disk that holds this, if so many commits were acknowledged.
pub(super) fn find(
    bytes: Vec<u8>,
    mark: &Path,
    acknowledged: Option<u64>,
) -> Result<(Identity, Kept), DataDirError> {
    let path = Path::new("log.redb");
    let database = builder().create_with_backend(Disk::holding(bytes));
    let database = database.map_err(|error| crate::durable::store::Problem::from(error).at(path, "open"))?;
    let watermark = Watermark::open(mark).unwrap().0;
    let (store, identity, kept) = Store::open(database, path, (watermark, acknowledged))?;
    drop(store);
    Ok((identity, kept))
}

pub(super) fn same_kept(left: &Kept, right: &Kept) -> bool {
    let rest = |kept: &Kept| (kept.purged, kept.vote, kept.committed);
    same(&left.entries, &right.entries) && rest(left) == rest(right)
}
