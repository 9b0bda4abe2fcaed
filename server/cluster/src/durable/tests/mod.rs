//! The log on disk under everything that can happen to it.

mod backend;
mod damage;
mod group_commit;
mod kill;
mod suite;
mod torn;

use std::path::Path;

use openraft::EntryPayload;
use openraft::storage::{RaftLogReader as _, RaftLogStorage as _, RaftLogStorageExt as _};

use super::dir::DataDir;
use super::{Identity, Opened};
use crate::born::Born;
use crate::log::Log;
use crate::node::{Cluster, Config};
use crate::slots::Slots;
use crate::timing::Timing;
use crate::types::{Command, Entry, LogId, Vote};

fn clock() -> u64 {
    5_000_000_000_000
}

/// The configuration of the process in the second place.
fn config() -> Config {
    let secret = ticketing_peer::Secret::new(b"a secret for the tests").unwrap();
    Config {
        slots: "a=h1:1@h1:2,b=h2:1@h2:2,c=h3:1@h3:2".parse::<Slots>().unwrap(),
        slot: 1,
        peer: ticketing_peer::Config { secret, tls: None, limits: ticketing_peer::Limits::default() },
        timing: Timing::default(),
        clock,
        hash_seed: [1, 2],
        data_dir: None,
        log_memory: crate::LOG_MEMORY,
        state_dir: None,
    }
}

fn identity() -> Identity {
    let member = config().member(1).unwrap();
    Identity { cluster: 0xabc, node: 2, incarnation: 77, member, slots: config().slots.names(), form: None }
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(term.into(), index)
}

fn vote(term: u64) -> Vote {
    Vote::new(term, 1)
}

/// An entry that can be told from all others.
fn entry(term: u64, index: u64) -> Entry {
    let record = format!("entry {index} of term {term}").into_bytes().into();
    let command = Command::Batch { term, run: 1, seq: index, record, born: Born::default() };
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
}

fn same(left: &[Entry], right: &[Entry]) -> bool {
    let bytes = |entries: &[Entry]| entries.iter().map(crate::calls::encode).collect::<Vec<_>>();
    bytes(left) == bytes(right)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The node in this folder, which becomes one if it is none.
fn open(folder: &Path) -> (DataDir, Opened) {
    let dir = DataDir::take(folder).unwrap();
    let opened = match dir.find(&config()).unwrap() {
        Some(found) => found,
        None => dir.begin(&identity(), &config()).unwrap(),
    };
    (dir, opened)
}

async fn append(log: &mut Log, entries: impl IntoIterator<Item = Entry>) {
    let entries = entries.into_iter().collect::<Vec<_>>();
    log.blocking_append(entries).await.unwrap();
}

async fn all(log: &mut Log) -> Vec<Entry> {
    log.try_get_log_entries(..).await.unwrap()
}

/// A node that says that it is none counts as one that has lost its memory.
#[tokio::test]
async fn it_says_who_it_is_from_the_first_moment() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let config = Config { data_dir: Some(folder.path().to_owned()), ..config() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::start(config, listener).await.unwrap();
    // On a runtime of one thread, nothing has run yet but this.
    assert_eq!(cluster.0.hello().cluster, 0xabc);
    assert_eq!((cluster.0.hello().node, cluster.0.hello().incarnation), (2, 77));
}

#[test]
fn a_node_comes_back_with_all_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let (dir, Opened { mut log, identity, .. }) = open(folder.path());
    assert_eq!(identity, super::tests::identity());
    assert!(log.is_pristine());
    let before = runtime.block_on(async {
        log.save_vote(&vote(3)).await.unwrap();
        append(&mut log, (0..10).map(|index| entry(1, index))).await;
        append(&mut log, (10..20).map(|index| entry(2, index))).await;
        log.truncate_after(Some(log_id(2, 14))).await.unwrap();
        append(&mut log, (15..30).map(|index| entry(3, index))).await;
        log.save_committed(Some(log_id(3, 20))).await.unwrap();
        all(&mut log).await
    });
    drop((log, dir));
    let (dir, Opened { mut log, identity, .. }) = open(folder.path());
    assert_eq!(identity, super::tests::identity());
    assert!(!log.is_pristine());
    runtime.block_on(async {
        assert!(same(&all(&mut log).await, &before));
        assert_eq!(before.len(), 30);
        assert_eq!(log.read_vote().await.unwrap(), Some(vote(3)));
        assert_eq!(log.read_committed().await.unwrap(), Some(log_id(3, 20)), "with the end of the process");
        log.truncate_after(Some(log_id(3, 24))).await.unwrap();
    });
    drop((log, dir));
    let (_dir, Opened { mut log, .. }) = open(folder.path());
    runtime.block_on(async {
        assert!(same(&all(&mut log).await, &before[..25]), "what was cut off is gone");
    });
}
