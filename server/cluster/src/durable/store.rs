//! The database: who the node is, its vote, and its part of the log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use openraft::entry::RaftEntry as _;
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

use super::record::{seal, unseal};
use super::watermark::Watermark;
use super::{DataDirError, Identity};
use crate::types::{Entry, LogId, Vote};

/// Version of what is in the tables.
const FORMAT: u32 = 1;

/// Entries by index.
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// Everything else by name.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The names in it.
mod name {
    pub(super) const FORMAT: &str = "format";
    pub(super) const IDENTITY: &str = "identity";
    pub(super) const VOTE: &str = "vote";
    /// The last entry that is gone because a snapshot holds what it did.
    pub(super) const PURGED: &str = "purged";
    /// A committed entry; later ones may be committed too.
    pub(super) const COMMITTED: &str = "committed";
    /// How often something was committed to this database.
    pub(super) const COMMITS: &str = "commits";
    /// There if the node has been replaced.
    pub(super) const SUPERSEDED: &str = "superseded";
}

/// The log is read once, at the start; what is written is cached until its commit.
const CACHE_BYTES: usize = 32 << 20;

/// What is to be on disk.
#[derive(Debug)]
pub(crate) enum Write {
    Append(Vec<Entry>),
    /// Entries from this index on are no more.
    TruncateFrom(u64),
    /// Entries up to this one are no more.
    PurgeUpTo(LogId),
    Vote(Vote),
    /// The node has been replaced.
    Superseded,
}

/// What was on disk.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) purged: Option<LogId>,
    /// Everything after it, without a gap.
    pub(crate) entries: Vec<Entry>,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
}

/// The open database.
pub(super) struct Store {
    path: PathBuf,
    database: Database,
    watermark: Watermark,
    commits: u64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// How a database is opened: all of it is read and checked, as damage that is found
/// in the midst of work is found too late.
pub(super) fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

impl Store {
    /// Makes a new database the node's.
    pub(super) fn begin(database: &Database, path: &Path, identity: &Identity) -> Result<(), DataDirError> {
        let fill = || {
            let transaction = database.begin_write()?;
            {
                let mut meta = transaction.open_table(META)?;
                put(&mut meta, name::FORMAT, &FORMAT)?;
                put(&mut meta, name::IDENTITY, identity)?;
                put(&mut meta, name::COMMITS, &0_u64)?;
                transaction.open_table(LOG)?;
            }
            transaction.commit()?;
            Ok(())
        };
        fill().map_err(|problem: Problem| problem.at(path, "write"))
    }

    /// Reads all that is in a database.
    pub(super) fn open(
        database: Database,
        path: &Path,
        watermark: (Watermark, Option<u64>),
    ) -> Result<(Self, Identity, Kept), DataDirError> {
        let (watermark, acknowledged) = watermark;
        let damaged =
            |place: &str, problem: &str| DataDirError::damaged(path, place.to_owned(), problem.to_owned());
        let read = || {
            let transaction = database.begin_read()?;
            let meta = transaction.open_table(META)?;
            let missing = |name| Problem::Damaged(format!("record {name:?}"), "it is not there".to_owned());
            let format = get::<u32>(&meta, name::FORMAT)?.ok_or_else(|| missing(name::FORMAT))?;
            if format > FORMAT {
                return Err(Problem::Newer(format));
            }
            let identity = get::<Identity>(&meta, name::IDENTITY)?.ok_or_else(|| missing(name::IDENTITY))?;
            let commits = get(&meta, name::COMMITS)?.ok_or_else(|| missing(name::COMMITS))?;
            let superseded = get(&meta, name::SUPERSEDED)?.unwrap_or(false);
            let mut kept = Kept {
                purged: get(&meta, name::PURGED)?,
                entries: Vec::new(),
                vote: get(&meta, name::VOTE)?,
                committed: get(&meta, name::COMMITTED)?,
            };
            for record in transaction.open_table(LOG)?.iter()? {
                let (index, bytes) = record?;
                let index = index.value();
                let at = |problem| Problem::Damaged(format!("entry {index} of the log"), problem);
                let entry = unseal::<Entry>(&index.to_be_bytes(), bytes.value()).map_err(at)?;
                if entry.index() != index {
                    return Err(at(format!("it says that it is entry {}", entry.index())));
                }
                kept.entries.push(entry);
            }
            Ok((identity, kept, commits, superseded))
        };
        let (identity, kept, commits, superseded) = read().map_err(|problem| problem.at(path, "read"))?;
        if acknowledged.is_some_and(|acknowledged| acknowledged > commits) {
            return Err(damaged(
                "its last commit",
                "one that was acknowledged is not there any more: it is damaged, the disk has lost what it was told to keep, \
                 or the file was replaced by an older one",
            ));
        }
        if superseded {
            let (cluster, node) = (identity.cluster_id(), identity.node);
            return Err(DataDirError::Superseded { path: path.to_owned(), cluster, node });
        }
        kept.check().map_err(|(place, problem)| damaged(&place, &problem))?;
        Ok((Self { path: path.to_owned(), database, watermark, commits }, identity, kept))
    }

    /// When this returns, all of it is on disk; if it fails, none of it can be relied
    /// upon, and nothing more may be written.
    pub(super) fn commit(&mut self, writes: &[Write], committed: Option<LogId>) -> Result<(), io::Error> {
        let commits = self.commits + 1;
        let mut write = || {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut log = transaction.open_table(LOG)?;
                let mut meta = transaction.open_table(META)?;
                for write in writes {
                    write.to(&mut log, &mut meta)?;
                }
                if let Some(committed) = committed {
                    put(&mut meta, name::COMMITTED, &committed)?;
                }
                put(&mut meta, name::COMMITS, &commits)?;
            }
            transaction.commit()?;
            self.watermark.set(commits)?;
            Ok(())
        };
        write().map_err(|problem: Problem| problem.at(&self.path, "write").into_io())?;
        self.commits = commits;
        Ok(())
    }
}

impl Write {
    fn to(&self, log: &mut Table<'_, u64, &[u8]>, meta: &mut Table<'_, &str, &[u8]>) -> Result<(), Problem> {
        match self {
            Self::Append(entries) => {
                for entry in entries {
                    let index = entry.index();
                    let bytes = seal(&index.to_be_bytes(), entry).map_err(io::Error::other)?;
                    log.insert(index, &bytes[..])?;
                }
            }
            Self::TruncateFrom(index) => log.retain_in(*index.., |_, _| false)?,
            Self::PurgeUpTo(upto) => {
                log.retain_in(..=upto.index, |_, _| false)?;
                put(meta, name::PURGED, upto)?;
            }
            Self::Vote(vote) => put(meta, name::VOTE, vote)?,
            Self::Superseded => put(meta, name::SUPERSEDED, &true)?,
        }
        Ok(())
    }
}

impl Kept {
    /// Where it is not what a node can have left, and why.
    fn check(&self) -> Result<(), (String, String)> {
        let mut last = self.purged;
        for entry in &self.entries {
            let (log_id, expected) = (entry.log_id(), last.map_or(0, |last| last.index + 1));
            if log_id.index != expected {
                let problem = format!("entry {expected} is not there, and {} is", log_id.index);
                return Err(("the log".to_owned(), problem));
            }
            if last.is_some_and(|last| log_id.leader_id < last.leader_id) {
                let problem = "it is of an earlier leader than the one before it".to_owned();
                return Err((format!("entry {expected} of the log"), problem));
            }
            last = Some(log_id);
        }
        if self.committed > last {
            return Err(("the log".to_owned(), "it ends before an entry that was committed".to_owned()));
        }
        Ok(())
    }
}

fn put(meta: &mut Table<'_, &str, &[u8]>, name: &'static str, value: &impl Serialize) -> Result<(), Problem> {
    let bytes = seal(name.as_bytes(), value).map_err(io::Error::other)?;
    meta.insert(name, &bytes[..])?;
    Ok(())
}

fn get<T: DeserializeOwned>(
    meta: &redb::ReadOnlyTable<&str, &[u8]>,
    name: &'static str,
) -> Result<Option<T>, Problem> {
    let Some(bytes) = meta.get(name)? else { return Ok(None) };
    let value = unseal(name.as_bytes(), bytes.value());
    value.map(Some).map_err(|problem| Problem::Damaged(format!("record {name:?}"), problem))
}

/// What can go wrong with a database.
pub(super) enum Problem {
    Database(redb::Error),
    Damaged(String, String),
    Newer(u32),
}

impl<E: Into<redb::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

impl Problem {
    pub(super) fn at(self, path: &Path, what: &'static str) -> DataDirError {
        match self {
            Self::Newer(found) => DataDirError::Newer { path: path.to_owned(), found, known: FORMAT },
            Self::Damaged(place, problem) => DataDirError::damaged(path, place, problem),
            Self::Database(redb::Error::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
                DataDirError::io(path, what)(source)
            }
            Self::Database(redb::Error::DatabaseAlreadyOpen) => DataDirError::InUse(path.to_owned()),
            Self::Database(error) => DataDirError::damaged(path, "the database", error.to_string()),
        }
    }
}

impl DataDirError {
    /// The same, as what openraft takes.
    fn into_io(self) -> io::Error {
        let kind = if let Self::Io { source, .. } = &self { source.kind() } else { io::ErrorKind::Other };
        io::Error::new(kind, self)
    }
}
