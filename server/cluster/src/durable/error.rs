//! Why a data directory cannot be used, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use ticketing_peer::ClusterId;

use crate::types::NodeId;

/// Why a data directory cannot be used. Nothing in it has been changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The system said no.
    #[error("{}: cannot {what} it: {source}{}", path.display(), advice(source))]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What could not be done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Two processes cannot be one node.
    #[error(
        "{}: another process uses this data directory; stop it, or give this one a directory of its own",
        .0.display()
    )]
    InUse(PathBuf),
    /// Not what was written.
    #[error(
        "{}: {place} is damaged: {problem}. The server must not go on without what it has promised. In a cluster whose \
         other nodes live, move the data directory away and start again: the node is then replaced by a new one. \
         Otherwise restore what was there when the server last ran. To begin anew instead, who held what forgotten, move it \
         away (in a cluster on every node, and then once `ticketing-server init`)",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Written by a server that came later.
    #[error(
        "{}: written by a newer ticketing-server (format {found}; this one reads up to {known}): upgrade this one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest one that is known here.
        known: u32,
    },
    /// It is a node's that fills another place.
    #[error(
        "{}: this data directory is of node {theirs}, and this process is to be node {ours}: check --data-dir and --slot",
        path.display()
    )]
    OtherSlot {
        /// The directory.
        path: PathBuf,
        /// The name of its place.
        theirs: String,
        /// The name of this process's place.
        ours: String,
    },
    /// It is a node's of a cluster of other places.
    #[error(
        "{}: this data directory is of {theirs}, and this process is to be of {ours}: check --data-dir and --cluster",
        path.display()
    )]
    OtherSlots {
        /// The directory.
        path: PathBuf,
        /// The names of its places.
        theirs: String,
        /// The names that this process was configured with.
        ours: String,
    },
    /// Its cluster looks for it elsewhere.
    #[error(
        "{}: the cluster knows node {node} as {theirs}, and this process is to be {ours}. Members keep their addresses: \
         give it the one that it had; or move the data directory away, so that a new node takes the place at the new one",
        path.display()
    )]
    OtherAddress {
        /// The directory.
        path: PathBuf,
        /// The name of its place.
        node: String,
        /// The addresses that it had.
        theirs: String,
        /// Those that this process was configured with.
        ours: String,
    },
    /// Its node has been replaced.
    #[error(
        "{}: node {node} of cluster {cluster}, whose data directory this is, has been replaced by another process, and \
         cannot come back. The data directory can be deleted; a process that starts with an empty one asks for the place anew",
        path.display()
    )]
    Superseded {
        /// The directory.
        path: PathBuf,
        /// The cluster.
        cluster: ClusterId,
        /// The node.
        node: NodeId,
    },
    /// No random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

impl DataDirError {
    /// What could not be done to `path`.
    pub(super) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }

    pub(crate) fn damaged(path: &Path, place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), place: place.into(), problem: problem.into() }
    }
}

/// What to do about it, where that is known.
fn advice(source: &io::Error) -> &'static str {
    use io::ErrorKind;
    let is = |kinds: &[ErrorKind]| kinds.contains(&source.kind());
    if is(&[ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem]) {
        ". The user that the server runs as must be allowed to write there"
    } else if is(&[ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge]) {
        ". Make room, then start again: nothing that was acknowledged is lost"
    } else if is(&[ErrorKind::NotADirectory, ErrorKind::AlreadyExists]) {
        ". Something else is in the way"
    } else {
        ""
    }
}
