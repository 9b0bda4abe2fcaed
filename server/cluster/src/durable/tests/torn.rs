//! A loss of power at every moment: whatever of a commit has reached the disk, all
//! that was acknowledged before is there, and the commit is there whole or not at all.

use openraft::entry::RaftEntry;

use super::backend::{Disk, Sync, begin, find, same_kept};
use super::{entry, log_id, vote};
use crate::durable::store::{Kept, Write, builder};
use crate::types::Entry;

/// What a correct log would hold.
#[derive(Clone, Debug, Default)]
struct Model {
    purged: Option<crate::types::LogId>,
    entries: Vec<Entry>,
    vote: Option<crate::types::Vote>,
    committed: Option<crate::types::LogId>,
}

impl Model {
    fn write(&mut self, write: &Write) {
        match write {
            Write::Append(entries) => self.entries.extend(entries.iter().cloned()),
            Write::TruncateFrom(index) => self.entries.retain(|entry| entry.index() < *index),
            Write::PurgeUpTo(upto) => {
                self.entries.retain(|entry| entry.index() > upto.index);
                self.purged = Some(*upto);
            }
            Write::Vote(vote) => self.vote = Some(*vote),
            Write::Superseded => {}
        }
    }

    fn next(&self) -> u64 {
        self.entries
            .last()
            .map(RaftEntry::index)
            .or(self.purged.map(|purged| purged.index))
            .map_or(0, |last| last + 1)
    }

    fn is(&self, kept: &Kept) -> bool {
        let Self { purged, entries, vote, committed } = self.clone();
        same_kept(kept, &Kept { purged, entries, vote, committed })
    }
}

/// A random number generator that is the same everywhere.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Whatever a node may write next.
fn turn(model: &Model, term: &mut u64, dice: &mut Dice) -> Vec<Write> {
    let next = model.next();
    match dice.below(10) {
        0 => {
            *term += 1;
            vec![Write::Vote(vote(*term))]
        }
        1 if model.entries.len() > 3 => {
            *term += 1;
            let from = next - 1 - dice.below(2);
            let again = (from..from + 1 + dice.below(3)).map(|index| entry(*term, index)).collect();
            vec![Write::TruncateFrom(from), Write::Append(again)]
        }
        2 if model.entries.len() > 20 => {
            let upto = model.entries[model.entries.len() - 8].log_id();
            vec![Write::PurgeUpTo(upto), Write::Append(vec![entry(*term, next)])]
        }
        _ => {
            let count = 1 + dice.below(12);
            (next..next + count).map(|index| Write::Append(vec![entry(*term, index)])).collect()
        }
    }
}

/// Lets a node write for a while; returns the state after each commit, the first of
/// which began it, and the disk.
fn work(commits: usize, seed: u64, mark: &std::path::Path) -> (Vec<Model>, Disk) {
    let disk = Disk::default();
    let mut store = begin(&disk, mark);
    disk.acknowledge(1);
    let (mut model, mut term, mut dice) = (Model::default(), 1, Dice(seed));
    let mut states = vec![model.clone()];
    for commit in 0..commits {
        let writes = turn(&model, &mut term, &mut dice);
        writes.iter().for_each(|write| model.write(write));
        if commit % 3 == 0
            && let Some(last) = model.entries.last()
        {
            model.committed = Some(last.log_id());
        }
        store.commit(&writes, model.committed).unwrap();
        states.push(model.clone());
        disk.acknowledge(states.len() as u64);
    }
    (states, disk)
}

/// Opens what a crash has left, and looks whether it is what it may be.
fn check(states: &[Model], sync: &Sync, bytes: Vec<u8>, mark: &std::path::Path) {
    // Before that it was not yet in its place.
    let Some(before) = usize::try_from(sync.acknowledged).unwrap().checked_sub(1) else { return };
    let (_, kept) = find(bytes, mark, Some(before as u64)).unwrap_or_else(|error| panic!("refused: {error}"));
    let is_there = states[before..].iter().take(2).any(|state| state.is(&kept));
    assert!(is_there, "after {before} commits: found {kept:?}");
}

#[test]
fn a_commit_cut_short_at_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let (states, disk) = work(30, 0x9e37_79b9_7f4a_7c15, &mark);
    let syncs = disk.syncs();
    let mut looked_at = 0;
    // The last two commits, and the clean end after them.
    let late = |sync: &&Sync| sync.acknowledged + 2 >= states.len() as u64;
    for sync in syncs.iter().filter(late) {
        sync.cut_short(|bytes| {
            looked_at += 1;
            check(&states, sync, bytes.to_vec(), &mark);
        });
    }
    println!("{looked_at} states");
    assert!(looked_at > 1000);
}

#[test]
fn sectors_written_in_whatever_order() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    for seed in 1..=3 {
        let (states, disk) = work(40, seed * 0x1234_5678_9abc_def1, &mark);
        let mut dice = Dice(seed);
        for sync in disk.syncs() {
            for likely in [1, 2, 3] {
                for _ in 0..4 {
                    check(&states, &sync, sync.scrambled(|| dice.below(4) < likely), &mark);
                }
            }
        }
    }
}

#[test]
fn a_second_crash_while_the_first_is_recovered_from() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let (states, disk) = work(20, 77, &mark);
    let mut dice = Dice(7);
    let syncs = disk.syncs();
    for first in syncs.iter().filter(|sync| sync.acknowledged > 0) {
        let torn = Disk::holding(first.scrambled(|| dice.below(2) == 0));
        drop(builder().create_with_backend(torn.clone()).unwrap());
        for mut second in torn.syncs() {
            second.acknowledged = first.acknowledged;
            for _ in 0..3 {
                check(&states, &second, second.scrambled(|| dice.below(2) == 0), &mark);
            }
        }
    }
}

#[test]
fn a_vote_never_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let disk = Disk::default();
    let mut store = begin(&disk, &mark);
    for term in 1..=20 {
        store.commit(&[Write::Vote(vote(term))], None).unwrap();
        let (_, kept) = find(disk.synced(), &mark, Some(term)).unwrap();
        assert_eq!(kept.vote, Some(vote(term)));
    }
    // An entry that was never there cannot be committed.
    store.commit(&[], Some(log_id(1, 7))).unwrap();
    assert!(find(disk.synced(), &mark, None).unwrap_err().to_string().contains("ends before"));
}
