//! What a node keeps on disk, so that it comes back as itself.
//!
//! ```text
//! DATA_DIR/lock                    held while a process uses the directory
//! DATA_DIR/node/log.redb           who the node is, its vote, its part of the log
//! DATA_DIR/node/acknowledged       how many commits of log.redb were acknowledged
//! DATA_DIR/node/snapshot-N         the state that the entries before N have made
//! DATA_DIR/ended-IDENTITY/         what a node of an identity that has ended has left
//! ```
//!
//! `node` is made under another name, synced, and renamed: either all of it is there
//! or nothing. The log is a redb database, which is never changed in place: a commit
//! that a crash has cut short is as if it had never begun. One thread writes it. It
//! takes everything that waits, commits it as one transaction with one fsync, and
//! then says so, in order. Every record carries a checksum of its own beside those
//! of the database, so that damage is named.
//!
//! A damaged last commit looks like one that was cut short, and redb drops it. That
//! it had been acknowledged is what `acknowledged` tells: then the directory is
//! refused, as a node that forgets a vote or an entry could break the promise of
//! the whole cluster.

mod dir;
mod error;
mod identity;
mod record;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod watermark;
mod writer;

pub use error::DataDirError;

pub(crate) use dir::{DataDir, Opened, make, sync};
pub(crate) use identity::Identity;
pub(crate) use snapshots::Snapshots;
pub(crate) use store::{Kept, Write};
pub(crate) use writer::{Done, Writer};
