//! Wall clocks that jump. They play no part in anything: only the time since boot does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt as _;
use ticketing_chaos::{Cluster, Host, Load, Network};
use ticketing_test_support::wait_until;

use crate::client::Client;
use crate::partitions::same_state;
use crate::{PATIENCE, judge, load, time};

/// The library that makes a process see another wall clock.
#[allow(clippy::print_stderr)] // So that a log tells what was tested.
fn faketime() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new);
    let nested = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = nested.chain(folders.map(Path::to_owned));
    let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("not tested: libfaketime is not installed (Debian: apt install libfaketime)");
    }
    found
}

/// Where a node finds how far off its wall clock is.
#[derive(Debug)]
struct WallClock(PathBuf);

impl WallClock {
    fn set(&self, offset_secs: i64) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{offset_secs:+}")).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }
}

/// How far off the wall clock of a node is: it stamps the lines of its log with it.
fn offset_secs(log: &str) -> Option<i64> {
    let stamp = log
        .lines()
        .rev()
        .find_map(|line| line.split_whitespace().next().filter(|word| word.ends_with('Z')))?;
    let read = Command::new("date").args(["-u", "+%s", "-d", stamp]).output().ok()?;
    let told: i64 = String::from_utf8(read.stdout).ok()?.trim().parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    Some(told - i64::try_from(now).ok()?)
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// They jump by an hour, by a day, back, ten times a second, each node's on its own:
/// leases last as long as they should, the leader stays, and nothing is decided twice.
#[test]
fn e37_wall_clocks_jump() {
    let Some(library) = faketime() else { return };
    let network = Network::new(4);
    let folder = tempfile::tempdir().unwrap();
    let clocks: Vec<WallClock> = (0..3).map(|node| WallClock(folder.path().join(node.to_string()))).collect();
    clocks.iter().for_each(|clock| clock.set(0));
    let builder = clocks.iter().enumerate().fold(Cluster::builder(), |builder, (node, clock)| {
        builder
            .env(Host(node), "LD_PRELOAD", &library)
            .env(Host(node), "FAKETIME_TIMESTAMP_FILE", &clock.0)
            .env(Host(node), "FAKETIME_NO_CACHE", "1")
            .env(Host(node), "FAKETIME_DONT_FAKE_MONOTONIC", "1")
    });
    let mut cluster = builder.start(&network);
    let running = cluster.load(&Load { leases: &[1, 2, 5], oversleep: 2, forget: 1, keys: 20, ..load() });
    running.wait_granted(100, PATIENCE);
    let leader = cluster.wait_leader();
    let term = cluster.status(leader).unwrap().term;
    for offset in [HOUR, -HOUR, DAY, -DAY, 0] {
        for (number, clock) in (0..).zip(&clocks) {
            clock.set(offset * (number % 2 * 2 - 1));
        }
        let lease = Duration::from_secs(2);
        let key = format!("leased-{offset}");
        let mut client = Client::new(&cluster);
        let asked = Instant::now();
        client.take(&key, 0, 2);
        clocks[leader.0].set(offset);
        client.take(&key, 30, 2);
        let took = asked.elapsed();
        assert!(
            took >= lease && took < 2 * lease + Duration::from_secs(2),
            "{took:?} for a lease of {lease:?}"
        );
        running.wait_granted(50, PATIENCE);
    }
    let start = Instant::now();
    let mut random = rand::rng();
    while start.elapsed() < time(Duration::from_secs(5)) {
        clocks.iter().for_each(|clock| clock.set(random.random_range(-DAY..DAY)));
        std::thread::sleep(Duration::from_millis(100));
    }
    running.wait_granted(50, PATIENCE);
    let leader = cluster.wait_leader();
    // Were a jump an election, there would be fifty.
    let elections = cluster.status(leader).unwrap().term - term;
    assert!(elections < 5, "{elections} elections");
    // All that would be worth nothing if they had not seen it.
    clocks[leader.0].set(DAY);
    let follower = cluster.hosts().find(|&host| host != leader).unwrap();
    cluster.node(follower).restart();
    wait_until("a line of the leader's log from tomorrow", PATIENCE, || {
        offset_secs(&cluster.server(leader).log()).is_some_and(|offset| (offset - DAY).abs() < HOUR)
    });
    cluster.wait_whole();
    judge(&running.finish());
    same_state(&cluster);
}
