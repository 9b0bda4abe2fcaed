//! A process that writes is killed, again and again; whatever it had been told is on
//! disk, and in its place, when the next one begins.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use openraft::entry::RaftEntry as _;
use openraft::storage::{
    IOFlushed, RaftLogReader as _, RaftLogStorage as _, RaftSnapshotBuilder as _, RaftStateMachine as _,
};
use openraft::type_config::TypeConfigExt as _;

use super::torn::Dice;
use super::{all, entry, log_id, open, runtime, vote};
use crate::durable::Opened;
use crate::types::Types;

const FOLDER: &str = "TICKETING_TEST_FOLDER";

/// Writes until it is killed, and says what it has been told.
#[test]
#[ignore = "it is run by another test, as a process of its own"]
fn the_process_that_is_killed() {
    let folder = std::env::var(FOLDER).expect("it is run by another test");
    let (_dir, Opened { mut log, mut machine, .. }) = open(Path::new(&folder));
    let seed = u64::from(std::process::id()) * 0x9e37_79b9;
    let mut dice = Dice(seed);
    let say = |what: &str, index: u64, term: u64| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{what} {index} {term}").unwrap();
        out.flush().unwrap();
    };
    runtime().block_on(async {
        let term = log.read_vote().await.unwrap().map_or(1, |vote| vote.leader_id.term + 1);
        log.save_vote(&vote(term)).await.unwrap();
        say("vote", 0, term);
        let state = log.get_log_state().await.unwrap();
        let mut next = state.last_log_id.map_or(0, |last| last.index + 1);
        loop {
            let mut waiting = Vec::new();
            for _ in 0..1 + dice.below(8) {
                let count = 1 + dice.below(4);
                let (sender, flushed) = Types::oneshot();
                let entries = (next..next + count).map(|index| entry(term, index)).collect::<Vec<_>>();
                log.append(entries, IOFlushed::<Types>::signal(sender)).await.unwrap();
                next += count;
                waiting.push((next, count, flushed));
            }
            for (next, count, flushed) in waiting {
                flushed.await.unwrap().unwrap();
                (next - count..next).for_each(|index| say("entry", index, term));
            }
            let applied = machine.view().applied.map_or(0, |applied| applied.index + 1);
            match dice.below(12) {
                0 if next > applied + 4 => {
                    next -= 1 + dice.below(3);
                    say("cutting", next, term);
                    log.truncate_after(Some(log_id(term, next - 1))).await.unwrap();
                    say("cut", next, term);
                }
                1 if next > applied + 20 => {
                    let entries = log.try_get_log_entries(applied..next - 10).await.unwrap();
                    let last = entries.last().unwrap().log_id();
                    let entries = entries.into_iter().map(|entry| Ok((entry, None)));
                    machine.apply(futures_util::stream::iter(entries)).await.unwrap();
                    machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
                    log.purge(last).await.unwrap();
                }
                _ => {}
            }
        }
    });
}

/// What the process has said that must be true of what is on disk.
#[derive(Debug, Default)]
struct Promises {
    vote: u64,
    /// The terms of entries by index.
    entries: BTreeMap<u64, u64>,
    /// From here on entries may have been cut off.
    doubtful: Option<u64>,
}

impl Promises {
    fn hear(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (Some(what), Some(Ok(index)), Some(Ok(term))) =
            (words.next(), words.next().map(str::parse::<u64>), words.next().map(str::parse::<u64>))
        else {
            return;
        };
        match what {
            "vote" => self.vote = term,
            "entry" => drop(self.entries.insert(index, term)),
            "cutting" => self.doubtful = Some(index),
            "cut" => {
                self.entries.split_off(&index);
                self.doubtful = None;
            }
            _ => {}
        }
    }

    /// Looks whether it is so, and takes what is there for the truth.
    fn check(&mut self, folder: &Path) -> u64 {
        let (_dir, Opened { mut log, mut machine, .. }) = open(folder);
        let (entries, vote, state) = runtime().block_on(async {
            (all(&mut log).await, log.read_vote().await.unwrap(), log.get_log_state().await.unwrap())
        });
        let vote = vote.map_or(0, |vote| vote.leader_id.term);
        assert!(vote >= self.vote, "the vote went back from {} to {vote}", self.vote);
        let begin = state.last_purged_log_id.map_or(0, |purged| purged.index + 1);
        let applied = runtime().block_on(machine.applied_state()).unwrap().0;
        assert!(applied >= state.last_purged_log_id);
        let there = entries.iter().map(|entry| (entry.index(), *entry.log_id().leader_id));
        let there = there.collect::<BTreeMap<_, _>>();
        let indices = there.keys().copied();
        assert!(indices.eq(begin..begin + there.len() as u64), "a gap");
        for (index, term) in self.entries.range(begin..) {
            let found = there.get(index);
            let may_be_gone = self.doubtful.is_some_and(|from| *index >= from);
            assert!(
                found == Some(term) || (found.is_none() && may_be_gone),
                "entry {index} of term {term}: {found:?}"
            );
        }
        let last = there.keys().next_back().copied().unwrap_or(begin);
        *self = Self { vote, entries: there, doubtful: None };
        last
    }
}

fn start(folder: &Path) -> Child {
    let name = "durable::tests::kill::the_process_that_is_killed";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
fn a_hundred_kills_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut promises = Promises::default();
    let mut dice = Dice(0xdead_beef);
    let begun = Instant::now();
    let (mut kills, mut last) = (0, 0);
    // On a slow machine it need not take all day.
    while kills < 100 || (kills < 150 && begun.elapsed() < Duration::from_secs(20)) {
        let mut child = start(folder.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard = dice.below(200);
        for _ in 0..heard {
            promises.hear(&lines.next().unwrap().unwrap());
        }
        child.kill().unwrap();
        // What it said before it was killed counts, the last line if it is whole.
        lines.map_while(Result::ok).for_each(|line| promises.hear(&line));
        child.wait().unwrap();
        last = promises.check(folder.path());
        kills += 1;
    }
    println!("{kills} kills, {last} entries, term {}, {:?}", promises.vote, begun.elapsed());
    assert!(last > 500 && promises.vote > 50);
}
