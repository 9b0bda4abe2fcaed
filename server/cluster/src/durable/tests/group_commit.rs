//! What waits for the disk goes there together; nobody is told before it is there;
//! a disk that has failed once is not trusted again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogStorage as _};
use openraft::type_config::TypeConfigExt as _;
use openraft::type_config::alias::OneshotReceiverOf;
use tokio::task::unconstrained;

use super::backend::{Disk, begin, find};
use super::{entry, runtime, vote};
use crate::durable::{Kept, Writer};
use crate::log::Log;
use crate::types::{Command, Entry, Types};

type Flushed = OneshotReceiverOf<Types, io::Result<()>>;

fn log(disk: &Disk, mark: &Path) -> Log {
    Log::durable(Kept::default(), Arc::new(Writer::start(begin(disk, mark)).unwrap()), 0)
}

async fn append(log: &mut Log, entry: Entry) -> Flushed {
    let (sender, flushed) = Types::oneshot();
    log.append([entry], IOFlushed::<Types>::signal(sender)).await.unwrap();
    flushed
}

fn large(index: u64, bytes: usize) -> Entry {
    let mut large = entry(1, index);
    if let EntryPayload::Normal(Command::Batch { record, .. }) = &mut large.payload {
        *record = vec![7; bytes].into();
    }
    large
}

fn entries_on(disk: &Disk, mark: &Path) -> usize {
    find(disk.synced(), mark, None).unwrap().1.entries.len()
}

#[test]
fn many_share_a_sync_and_none_is_told_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let disk = Disk::default();
    let mut log = log(&disk, &mark);
    disk.set_sync(Duration::from_millis(50), false);
    let syncs_before = disk.syncs().len();
    runtime().block_on(async {
        let start = Instant::now();
        let mut waiting = Vec::new();
        for index in 0..200 {
            waiting.push(append(&mut log, entry(1, index)).await);
        }
        assert!(start.elapsed() < Duration::from_millis(500), "to append is not to wait");
        for (index, flushed) in waiting.into_iter().enumerate() {
            flushed.await.unwrap().unwrap();
            assert!(entries_on(&disk, &mark) > index, "entry {index} was acknowledged before it was there");
        }
        log.save_vote(&vote(9)).await.unwrap();
        assert_eq!(find(disk.synced(), &mark, None).unwrap().1.vote, Some(vote(9)), "the vote is there");
    });
    let syncs = disk.syncs().len() - syncs_before;
    assert!(syncs <= 5, "{syncs} syncs for 200 entries and a vote");
}

#[test]
fn they_are_told_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let mut log = log(&disk, &folder.path().join("mark"));
    disk.set_sync(Duration::from_millis(200), false);
    // Without tokio's budget, which would have them look in another order.
    runtime().block_on(unconstrained(async {
        let mut waiting = FuturesUnordered::new();
        for index in 0..500 {
            let flushed = append(&mut log, entry(1, index)).await;
            waiting.push(async move { flushed.await.map(|_| index) });
        }
        // All of them wait; then they come in the order in which they are woken.
        assert!(waiting.next().now_or_never().is_none());
        let mut told = Vec::new();
        while let Some(index) = waiting.next().await {
            told.push(index.unwrap());
        }
        assert!(told.is_sorted(), "{told:?}");
    }));
}

#[test]
fn a_failed_sync_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let disk = Disk::default();
    let mut log = log(&disk, &mark);
    runtime().block_on(async {
        append(&mut log, entry(1, 0)).await.await.unwrap().unwrap();
        disk.set_sync(Duration::ZERO, true);
        let error = append(&mut log, entry(1, 1)).await.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("log.redb") && error.contains("the disk is broken"), "{error}");
        // It works again, as it seems.
        disk.set_sync(Duration::ZERO, false);
        assert!(append(&mut log, entry(1, 2)).await.await.unwrap().is_err());
        assert!(log.save_vote(&vote(3)).await.is_err());
        assert!(log.truncate_after(None).await.is_err());
    });
    drop(log);
    assert_eq!(entries_on(&disk, &mark), 1);
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let disk = Disk::default();
    let mut log = log(&disk, &mark);
    disk.set_most(Some(2 << 20));
    let acknowledged = runtime().block_on(async {
        for index in 0.. {
            if let Err(error) = append(&mut log, large(index, 100_000)).await.await.unwrap() {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                assert!(error.to_string().contains("Make room, then start again"), "{error}");
                return usize::try_from(index).unwrap();
            }
        }
        unreachable!("the disk was never full")
    });
    drop(log);
    assert!(acknowledged > 5);
    let there = entries_on(&disk, &mark);
    assert!((acknowledged..=acknowledged + 1).contains(&there), "{there} of {acknowledged}");
}

#[test]
fn a_disk_that_does_not_keep_up_holds_up_whoever_writes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let mut log = log(&disk, &folder.path().join("mark"));
    disk.hold(true);
    runtime().block_on(async {
        let mut taken = 0;
        while taken < 100 {
            // It goes into the queue whether or not whoever asks waits for room.
            let flushed = append(&mut log, large(taken, 4 << 20)).boxed().now_or_never();
            taken += 1;
            if flushed.is_none() {
                break;
            }
        }
        // 64 MiB wait, and the disk has the first one or the first few already.
        assert!((16..=25).contains(&taken), "{taken}");
        disk.hold(false);
        append(&mut log, entry(1, taken)).await.await.unwrap().unwrap();
    });
}
