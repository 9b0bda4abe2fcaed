//! The state that a part of the log has made, as a file. Only the last one is kept.
//!
//! It tells how much of each lease had passed when it was written. What passes
//! afterwards is not counted, nor what passed of leases that only the log holds: so
//! after a restart a lease ends later than it would have, and never earlier.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::DataDirError;
use super::dir::sync;
use crate::calls::{decode, encode};
use crate::types::{NodeId, SnapshotMeta};

/// What a snapshot begins with: what it is, and its version.
const MAGIC: [u8; 8] = *b"tktsnap\x01";

/// It is synced piece by piece: a large sync would hold up those of the log.
const PIECE_BYTES: usize = 4 << 20;

/// A snapshot that is not yet one.
const UNFINISHED: &str = "snapshot.new";

/// What stands before the state.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    cluster: u128,
    node: NodeId,
    meta: SnapshotMeta,
    bytes: u64,
}

/// Where the snapshots of a node are.
#[derive(Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    cluster: u128,
    node: NodeId,
    /// The index after the last entry of the snapshot that is there.
    saved: Mutex<Option<u64>>,
    bytes: AtomicUsize,
}

impl Snapshots {
    pub(super) fn new(folder: PathBuf, cluster: u128, node: NodeId) -> Self {
        Self { folder, cluster, node, saved: Mutex::new(None), bytes: AtomicUsize::new(0) }
    }

    /// How large the last one is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When this returns, the snapshot is on disk and the one before is not. One that
    /// is older than that is not written.
    pub(crate) fn save(&self, meta: &SnapshotMeta, state: &[u8]) -> Result<(), io::Error> {
        let named = |error: io::Error| {
            let problem = format!("{}: cannot write a snapshot: {error}", self.folder.display());
            io::Error::new(error.kind(), problem)
        };
        // A panic while it was held has left a file that is not yet a snapshot, at most.
        let mut saved = self.saved.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next = next_index(meta);
        if saved.is_some_and(|saved| next < saved) {
            return Ok(());
        }
        self.write(next, meta, state).map_err(named)?;
        let before = saved.replace(next).filter(|before| *before != next);
        self.bytes.store(state.len(), Ordering::Relaxed);
        match before {
            Some(before) => fs::remove_file(self.path(before)).map_err(named),
            None => Ok(()),
        }
    }

    fn write(&self, next: u64, meta: &SnapshotMeta, state: &[u8]) -> Result<(), io::Error> {
        let Self { folder, cluster, node, .. } = self;
        let bytes = state.len() as u64;
        let head = encode(&Head { cluster: *cluster, node: *node, meta: meta.clone(), bytes });
        // A handful of members with their addresses.
        let head_len = u32::try_from(head.len()).map_err(io::Error::other)?.to_le_bytes();
        let new = folder.join(UNFINISHED);
        let mut file = File::create(&new)?;
        let mut hasher = crc32fast::Hasher::new();
        for part in [&MAGIC, &head_len[..], &head, state] {
            hasher.update(part);
            for piece in part.chunks(PIECE_BYTES) {
                file.write_all(piece)?;
                if piece.len() == PIECE_BYTES {
                    file.sync_data()?;
                }
            }
        }
        file.write_all(&hasher.finalize().to_le_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.path(next))?;
        sync(folder)
    }

    /// The last one, if there is any.
    pub(crate) fn load(&self) -> Result<Option<(PathBuf, SnapshotMeta, Vec<u8>)>, DataDirError> {
        let folder = &self.folder;
        let listed = fs::read_dir(folder).map_err(DataDirError::io(folder, "read"))?;
        let mut found = Vec::new();
        for file in listed {
            let name = file.map_err(DataDirError::io(folder, "read"))?.file_name();
            let index = name.to_str().and_then(|name| name.strip_prefix("snapshot-"));
            found.extend(index.and_then(|index| index.parse::<u64>().ok()));
        }
        found.sort_unstable();
        let Some(last) = found.pop() else { return Ok(None) };
        let path = self.path(last);
        let bytes = fs::read(&path).map_err(DataDirError::io(&path, "read"))?;
        let (meta, state) = self.parse(&path, &bytes)?;
        if next_index(&meta) != last {
            return Err(DataDirError::damaged(&path, "the snapshot", "it was given another name"));
        }
        // A crash came before they were removed.
        for older in found {
            let path = self.path(older);
            fs::remove_file(&path).map_err(DataDirError::io(&path, "remove"))?;
        }
        *self.saved.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(last);
        self.bytes.store(state.len(), Ordering::Relaxed);
        let state = state.to_vec();
        Ok(Some((path, meta, state)))
    }

    fn parse<'a>(&self, path: &Path, bytes: &'a [u8]) -> Result<(SnapshotMeta, &'a [u8]), DataDirError> {
        let damaged = |problem: &str| DataDirError::damaged(path, "the snapshot", problem);
        let short = || damaged("it is cut short");
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        if *magic != MAGIC {
            return Err(match magic.split_last() {
                Some((&version, kind)) if MAGIC.starts_with(kind) && version > MAGIC[7] => {
                    let (path, found, known) = (path.to_owned(), version.into(), MAGIC[7].into());
                    DataDirError::Newer { path, found, known }
                }
                _ => damaged("it is none"),
            });
        }
        let (checked, sum) = bytes.split_last_chunk::<4>().ok_or_else(short)?;
        if crc32fast::hash(checked).to_le_bytes() != *sum {
            return Err(damaged("its checksum does not match"));
        }
        let (head_len, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (head, rest) = rest.split_at_checked(u32::from_le_bytes(*head_len) as usize).ok_or_else(short)?;
        let Head { cluster, node, meta, bytes } = decode(head).map_err(|problem| damaged(&problem))?;
        if (cluster, node) != (self.cluster, self.node) {
            return Err(damaged("it is another node's"));
        }
        match rest.split_last_chunk::<4>() {
            Some((state, _)) if state.len() as u64 == bytes => Ok((meta, state)),
            _ => Err(short()),
        }
    }

    fn path(&self, next: u64) -> PathBuf {
        self.folder.join(format!("snapshot-{next}"))
    }
}

/// The index after the last entry that a snapshot holds.
fn next_index(meta: &SnapshotMeta) -> u64 {
    meta.last_log_id.map_or(0, |last| last.index + 1)
}
