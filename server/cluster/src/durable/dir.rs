//! The directory, and how a node begins and ends in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ticketing_peer::ClusterId;
use tracing::{info, warn};

use super::store::{Problem, Store, builder};
use super::watermark::Watermark;
use super::{DataDirError, Identity, Snapshots, Writer};
use crate::log::Log;
use crate::machine::Machine;
use crate::node::Config;

/// A data directory that is ours alone as long as this value lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    folder: PathBuf,
    /// The system gives the lock up with the file, however the process ends.
    _lock: File,
}

/// A node that was found in a directory, or made there.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    pub(crate) log: Log,
    pub(crate) machine: Machine,
}

impl DataDir {
    /// Takes the folder, made if it is not there.
    pub(crate) fn take(folder: &Path) -> Result<Self, DataDirError> {
        make(folder).map_err(DataDirError::io(folder, "make"))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(DataDirError::io(&lock_path, "open"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DataDirError::InUse(folder.to_owned()),
            TryLockError::Error(error) => DataDirError::io(&lock_path, "lock")(error),
        })?;
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// The node whose directory this is, if it is one's already.
    pub(crate) fn find(&self, config: &Config) -> Result<Option<Opened>, DataDirError> {
        // What a crash has left of a node that was being made, or given up.
        for leftover in [self.new_node(), self.dropped_node()] {
            remove(&leftover)?;
        }
        if !self.node().try_exists().map_err(DataDirError::io(&self.node(), "read"))? {
            return Ok(None);
        }
        let opened = self.open(config)?;
        opened.identity.fits(config, &self.folder)?;
        Ok(Some(opened))
    }

    /// Makes it the directory of this node. What a node of an identity that has ended
    /// has left in it is put aside.
    pub(crate) fn begin(&self, identity: &Identity, config: &Config) -> Result<Opened, DataDirError> {
        let ended = identity.form.as_ref().map_or(0, |form| form.instead_of);
        if ended != 0 && self.node().exists() {
            let aside = self.folder.join(format!("ended-{}", ClusterId(ended.to_be_bytes())));
            self.rename(&self.node(), &aside)?;
            info!(path = %aside.display(), "the data of the ended identity is kept there; it can be deleted");
        }
        let new = self.new_node();
        remove(&new)?;
        fs::create_dir(&new).map_err(DataDirError::io(&new, "make"))?;
        let path = new.join("log.redb");
        let database = builder().create(&path).map_err(|error| Problem::from(error).at(&path, "make"))?;
        Store::begin(&database, &path, identity)?;
        drop(database);
        sync(&new).map_err(DataDirError::io(&new, "sync"))?;
        self.rename(&new, &self.node())?;
        self.open(config)
    }

    /// Forgets a node that has promised nothing to anybody.
    pub(crate) fn forget(&self) -> Result<(), DataDirError> {
        self.rename(&self.node(), &self.dropped_node())?;
        remove(&self.dropped_node())
    }

    fn open(&self, config: &Config) -> Result<Opened, DataDirError> {
        let (node, path) = (self.node(), self.node().join("log.redb"));
        let database = builder().open(&path).map_err(|error| Problem::from(error).at(&path, "open"))?;
        let mark_path = node.join("acknowledged");
        let mark = Watermark::open(&mark_path).map_err(DataDirError::io(&mark_path, "open"))?;
        let (store, identity, kept) = Store::open(database, &path, mark)?;
        let snapshots = Arc::new(Snapshots::new(node, identity.cluster, identity.node));
        let machine = Machine::durable(config.hash_seed, config.clock, snapshots)?;
        if kept.purged > machine.view().applied {
            let problem = "it begins after the entries that the snapshot holds, which is missing or too old";
            return Err(DataDirError::damaged(&path, "the log", problem));
        }
        let writer = Writer::start(store).map_err(DataDirError::io(&path, "start a thread to write"))?;
        let log = Log::durable(kept, Arc::new(writer), (config.clock)());
        Ok(Opened { identity, log, machine })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DataDirError> {
        fs::rename(from, to).map_err(DataDirError::io(from, "rename"))?;
        sync(&self.folder).map_err(DataDirError::io(&self.folder, "sync"))
    }

    fn node(&self) -> PathBuf {
        self.folder.join("node")
    }

    fn new_node(&self) -> PathBuf {
        self.folder.join("node.new")
    }

    fn dropped_node(&self) -> PathBuf {
        self.folder.join("node.dropped")
    }
}

fn remove(folder: &Path) -> Result<(), DataDirError> {
    match fs::remove_dir_all(folder) {
        Ok(()) => {
            warn!(path = %folder.display(), "removed what was left of a node that never took part");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DataDirError::io(folder, "remove")(error)),
    }
}

/// Makes a folder, and what it stands in, if they are not there; on disk when it returns.
pub(crate) fn make(folder: &Path) -> Result<(), io::Error> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    // As far up as we may read; we could not have made anything above.
    let above = folder.canonicalize()?;
    let _ = above.ancestors().skip(1).try_for_each(sync);
    Ok(())
}

/// The names in a folder too must be on disk.
pub(crate) fn sync(folder: &Path) -> Result<(), io::Error> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    Ok(())
}
