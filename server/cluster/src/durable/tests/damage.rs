//! What is damaged, or not this node's, is refused with its place named; nothing is
//! ever read that was not written.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use openraft::storage::{RaftLogStorage as _, RaftSnapshotBuilder as _, RaftStateMachine as _};
use redb::TableDefinition;

use super::backend::{Disk, begin, find, same_kept};
use super::{append, clock, config, entry, identity, log_id, open, runtime, vote};
use crate::durable::store::{Write, builder};
use crate::durable::{DataDir, DataDirError, Opened, Snapshots};
use crate::machine::Machine;

/// Flips bits everywhere and looks at what is found.
fn flip_everywhere(bytes: &[u8], acknowledged: u64, mark: &Path) {
    let (_, whole) = find(bytes.to_vec(), mark, Some(acknowledged)).unwrap();
    let (mut refused, mut harmless) = (0, 0);
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    // Every byte of the head, and a seventh of the rest.
    for at in (0..=used).filter(|at| *at < 512 || at % 7 == 0) {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        let found = catch_unwind(AssertUnwindSafe(|| find(damaged, mark, Some(acknowledged))));
        match found.unwrap_or_else(|_| panic!("a panic at byte {at}")) {
            Ok((who, kept)) => {
                assert_eq!(who, identity());
                assert!(same_kept(&kept, &whole), "byte {at}: something else was read");
                harmless += 1;
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("log.redb"), "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {harmless} harmless");
    // Most pages hold what was there once.
    assert!(refused > 200 && harmless > 200);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let disk = Disk::default();
    let mut store = begin(&disk, &mark);
    for index in 0..40 {
        store.commit(&[Write::Append(vec![entry(1, index)])], None).unwrap();
    }
    store.commit(&[Write::Vote(vote(7))], Some(log_id(1, 39))).unwrap();
    let crashed = disk.seen();
    drop(store);
    flip_everywhere(&crashed, 41, &mark);
    flip_everywhere(&disk.seen(), 41, &mark);
}

/// Replaces a record of a database by another one that the database takes for good.
fn replace_entry(path: &Path, index: u64, change: impl FnOnce(&mut Vec<u8>)) {
    const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
    let database = builder().open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut log = transaction.open_table(LOG).unwrap();
        let mut bytes = log.remove(index).unwrap().unwrap().value().to_vec();
        change(&mut bytes);
        if !bytes.is_empty() {
            log.insert(index, &bytes[..]).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// A node with ten entries, a vote, and a snapshot of the first five.
fn node(folder: &Path) {
    let (_dir, Opened { mut log, mut machine, .. }) = open(folder);
    runtime().block_on(async {
        log.save_vote(&vote(2)).await.unwrap();
        append(&mut log, (0..10).map(|index| entry(1, index))).await;
        let applied = (0..5).map(|index| Ok((entry(1, index), None)));
        machine.apply(futures_util::stream::iter(applied)).await.unwrap();
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        log.purge(log_id(1, 2)).await.unwrap();
    });
}

fn refused(folder: &Path) -> DataDirError {
    DataDir::take(folder).unwrap().find(&config()).unwrap_err()
}

#[test]
fn a_damaged_record_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node/log.redb");
    node(folder.path());
    replace_entry(&path, 5, |bytes| bytes[20] ^= 1);
    let error = refused(folder.path()).to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("entry 5 of the log is damaged: its checksum does not match"), "{error}");
    assert!(error.contains("move the data directory away"), "{error}");
    replace_entry(&path, 5, Vec::clear);
    let error = refused(folder.path()).to_string();
    assert!(error.contains("entry 5 is not there, and 6 is"), "{error}");
}

#[test]
fn a_database_that_was_wound_back_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path());
    let path = folder.path().join("node/log.redb");
    let old = fs::read(&path).unwrap();
    let (_dir, Opened { mut log, .. }) = open(folder.path());
    runtime().block_on(append(&mut log, [entry(1, 10)]));
    drop((log, _dir));
    drop(open(folder.path()));
    fs::write(&path, old).unwrap();
    let error = refused(folder.path()).to_string();
    assert!(error.contains("one that was acknowledged is not there any more"), "{error}");
}

#[test]
fn a_snapshot_is_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path());
    let path = folder.path().join("node/snapshot-5");
    let bytes = fs::read(&path).unwrap();
    let open = || {
        let identity = identity();
        let snapshots = Snapshots::new(folder.path().join("node"), identity.cluster, identity.node);
        Machine::durable([1, 2], clock, snapshots.into())
    };
    assert_eq!(open().unwrap().view().applied, Some(log_id(1, 4)));
    for at in 0..bytes.len() {
        fs::write(&path, &bytes[..at]).unwrap();
        assert!(open().unwrap_err().to_string().contains("snapshot-5"), "cut at {at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(open().unwrap_err().to_string().contains("snapshot-5"), "flipped at {at}");
    }
    let mut newer = bytes.clone();
    newer[7] = 9;
    fs::write(&path, &newer).unwrap();
    assert!(open().unwrap_err().to_string().contains("upgrade"));
    fs::write(&path, &bytes).unwrap();
    fs::write(path.with_file_name("snapshot.new"), "cut sh").unwrap();
    assert_eq!(open().unwrap().view().applied, Some(log_id(1, 4)), "what was not finished is no snapshot");
    let strange = Snapshots::new(folder.path().join("node"), 99, 2);
    let error = Machine::durable([1, 2], clock, strange.into()).unwrap_err().to_string();
    assert!(error.contains("another node's"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = refused(folder.path()).to_string();
    assert!(error.contains("missing or too old"), "{error}");
}

#[test]
fn the_directory_of_somebody_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path());
    let dir = DataDir::take(folder.path()).unwrap();
    let error = DataDir::take(folder.path()).unwrap_err().to_string();
    assert!(error.contains("another process uses this data directory"), "{error}");
    let mut other = config();
    other.slot = 2;
    let error = dir.find(&other).unwrap_err().to_string();
    assert!(
        error.contains("of node b, and this process is to be node c: check --data-dir and --slot"),
        "{error}"
    );
    other.slots = "a=h1:1@h1:2,b=h2:1@h2:2,d=h3:1@h3:2".parse().unwrap();
    let error = dir.find(&other).unwrap_err().to_string();
    assert!(
        error.contains("of a cluster of a, b, c, and this process is to be of a cluster of a, b, d"),
        "{error}"
    );
    other.slots = "a=h1:1@h1:2,b=h9:1@h2:2,c=h3:1@h3:2".parse().unwrap();
    other.slot = 1;
    let error = dir.find(&other).unwrap_err().to_string();
    assert!(error.contains("knows node b as h2:1@h2:2, and this process is to be h9:1@h2:2"), "{error}");
    other.slots = crate::slots::Slots::alone("h:1".to_owned());
    let error = dir.find(&other).unwrap_err().to_string();
    assert!(error.contains("a server in single mode"), "{error}");
    assert!(dir.find(&config()).unwrap().is_some(), "nothing was changed");
}

#[test]
fn a_newer_one_and_a_replaced_one_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, Opened { log, .. }) = open(folder.path());
    runtime().block_on(log.write(Write::Superseded)).unwrap();
    drop(log);
    let error = dir.find(&config()).unwrap_err();
    assert!(matches!(error, DataDirError::Superseded { node: 2, .. }));
    assert!(error.to_string().contains("can be deleted"), "{error}");

    const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let database = builder().open(folder.path().join("node/log.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let newer = super::super::record::seal(b"format", &2_u32).unwrap();
    transaction.open_table(META).unwrap().insert("format", &newer[..]).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = dir.find(&config()).unwrap_err().to_string();
    assert!(
        error.contains("format 2; this one reads up to 1") && error.contains("upgrade this one"),
        "{error}"
    );
}

#[test]
fn what_is_no_directory_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DataDir::take(&file).unwrap_err().to_string();
    assert!(error.contains("cannot make it") && error.contains("in the way"), "{error}");
    fs::create_dir(folder.path().join("node")).unwrap();
    let error = refused(folder.path()).to_string();
    assert!(error.contains("log.redb: cannot open it"), "{error}");
    fs::write(folder.path().join("node/log.redb"), "something else").unwrap();
    let error = refused(folder.path()).to_string();
    assert!(error.contains("the database is damaged"), "{error}");
}

#[test]
fn a_node_that_was_not_finished_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for leftover in ["node.new", "node.dropped"] {
        fs::create_dir(folder.path().join(leftover)).unwrap();
        fs::write(folder.path().join(leftover).join("log.redb"), "half").unwrap();
    }
    let dir = DataDir::take(folder.path()).unwrap();
    assert!(dir.find(&config()).unwrap().is_none());
    drop(dir.begin(&identity(), &config()).unwrap());
    assert!(dir.find(&config()).unwrap().is_some());
    dir.forget().unwrap();
    assert!(dir.find(&config()).unwrap().is_none());
    let left = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["lock"]);
}
