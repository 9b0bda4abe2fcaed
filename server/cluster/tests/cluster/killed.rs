//! All nodes of a cluster are killed by SIGKILL while they are at work, again and
//! again: whatever was acknowledged is there when they come back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ticketing_cluster::Slots;
use ticketing_engine::{Effect, Fate};

use crate::lab::{Lab, fate, grant, places};

const FOLDER: &str = "TICKETING_TEST_FOLDER";
const SLOTS: &str = "TICKETING_TEST_SLOTS";

/// Batches that are under way at a time.
const WINDOW: u64 = 20;

/// Three nodes in one process. It says what it is about to do and what was done.
#[test]
#[ignore = "it is run by another test, as a process of its own"]
fn the_cluster_that_is_killed() {
    let folder = std::env::var(FOLDER).expect("it is run by another test");
    let slots = std::env::var(SLOTS).unwrap().parse::<Slots>().unwrap();
    let lab = Lab::found(slots, Path::new(&folder));
    // Only the first time.
    let _ = lab.init(false);
    let say = |what: &str, token: u64| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{what} {token}").unwrap();
        out.flush().unwrap();
    };
    loop {
        let (leader, office) = lab.leader();
        let node = lab.node(leader);
        let replica = node.cluster.replica().unwrap();
        let place = replica.place();
        let next = place.first_token.max(replica.table().next_token());
        let (mut seq, mut held) = (place.batches, Vec::new());
        // Until the office is lost.
        'office: for window in 0.. {
            let mut told = Vec::new();
            let first = next + window * WINDOW;
            for token in first..first + WINDOW {
                seq += 1;
                let key = token.to_string();
                told.push(("granted", token, node.propose(office, seq, &[grant(key.as_bytes(), token)])));
                if token % 3 == 0
                    && let Some(token) = held.pop()
                {
                    seq += 1;
                    say("releasing", token);
                    let key = token.to_string();
                    let release = Effect::Release { key: key.as_bytes(), token };
                    told.push(("released", token, node.propose(office, seq, &[release])));
                }
            }
            for (what, token, told) in told {
                if fate(&told) != Fate::Applied {
                    break 'office;
                }
                say(what, token);
                if what == "granted" {
                    held.push(token);
                }
            }
        }
    }
}

/// What it has said. A key is the text of the token of its only grant.
#[derive(Debug, Default)]
struct Promises {
    granted: BTreeSet<u64>,
    released: BTreeSet<u64>,
    releasing: BTreeSet<u64>,
}

impl Promises {
    fn hear(&mut self, line: &str) {
        let Some((what, Ok(token))) = line.split_once(' ').map(|(what, token)| (what, token.parse())) else {
            return;
        };
        let _ = match what {
            "granted" => self.granted.insert(token),
            "released" => self.released.insert(token),
            "releasing" => self.releasing.insert(token),
            _ => false,
        };
    }

    fn check(&self, lab: &Lab) {
        for node in lab.up() {
            let replica = node.cluster.replica().unwrap();
            let held = replica.table().locks().map(|held| (held.key.to_vec(), held.token));
            let held = held.collect::<BTreeMap<_, _>>();
            for token in &self.granted {
                let found = held.get(token.to_string().as_bytes());
                match found {
                    Some(found) => assert!(found == token && !self.released.contains(token), "{token}"),
                    None => assert!(self.releasing.contains(token), "the grant of {token} is lost"),
                }
            }
            assert!(self.granted.last().is_none_or(|last| *last < replica.table().next_token()));
        }
    }
}

fn start(folder: &Path, slots: &Slots) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::the_cluster_that_is_killed", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder).env(SLOTS, slots.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (slots, listeners) = places(3);
    drop(listeners);
    let mut promises = Promises::default();
    let mut identity = None;
    for kill in 0..8 {
        let mut child = start(folder.path(), &slots);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = promises.granted.len() + 30 + 37 * kill;
        while promises.granted.len() < enough {
            promises.hear(&lines.next().unwrap().unwrap());
        }
        child.kill().unwrap();
        // What it said before it was killed counts.
        lines.map_while(Result::ok).for_each(|line| promises.hear(&line));
        child.wait().unwrap();
        let lab = Lab::found(slots.clone(), folder.path());
        lab.leader();
        let status = lab.wait_for_agreement();
        assert_eq!(status.voters.iter().map(|voter| voter.node).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(*identity.get_or_insert(status.identity.clone()), status.identity);
        promises.check(&lab);
    }
    println!("{} grants, {} releases", promises.granted.len(), promises.released.len());
    assert!(promises.released.len() > 50);
}
