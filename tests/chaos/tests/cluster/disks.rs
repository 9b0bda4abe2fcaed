//! Disks that are full, that cannot be written, that are slow, or that are another node's.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ticketing_chaos::{Cluster, Host, Load, Network, slow_disks_are_missing};
use ticketing_test_support::wait_until;

use crate::client::Client;
use crate::partitions::same_state;
use crate::{PATIENCE, judge_by, load, rules, undisturbed};

/// A file system of its own for a folder; it takes root.
struct Mounted<'p>(&'p Path);

impl<'p> Mounted<'p> {
    /// `None`: there can be none here, as is told.
    #[allow(clippy::print_stderr)] // So that a log tells what was tested.
    fn new(at: &'p Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        let is_there = mounted.is_ok_and(|output| output.status.success());
        if !is_there {
            eprintln!("not tested: a file system cannot be mounted here (it takes root)");
        }
        is_there.then_some(Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).output();
    }
}

/// The disk of one node is full: it says so and ends, the others go on, and with room
/// again it comes back.
#[test]
fn e75_a_disk_is_full() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().prepare(&network);
    let place = cluster.hosts().next().unwrap();
    let folder = cluster.data_dir(place.0);
    let Some(_small) = Mounted::new(&folder, "size=20m") else { return };
    cluster.hosts().for_each(|host| cluster.node(host).start());
    cluster.init();
    cluster.wait_leader();
    let running = cluster.load(&Load { keys: 64, ..load() });
    running.wait_granted(20, PATIENCE);
    let mut filler = std::fs::File::create(folder.join("filler")).unwrap();
    // Up to the last byte.
    let _ = std::io::copy(&mut std::io::repeat(0), &mut filler);
    wait_until("the end of the node whose disk is full", 2 * PATIENCE, || !cluster.node(place).is_running());
    let log = cluster.server(place).log();
    assert!(log.contains("No space left"), "{log}");
    running.wait_granted(50, PATIENCE);
    // It takes its room until it is closed.
    drop(filler);
    std::fs::remove_file(folder.join("filler")).unwrap();
    cluster.node(place).restart();
    cluster.wait_whole();
    assert_eq!(cluster.status(place).unwrap().node, Some(1), "it comes back as itself");
    running.wait_granted(50, PATIENCE);
    judge_by(&running.finish(), &rules());
    same_state(&cluster);
}

/// A data directory that cannot be written is no start with an empty memory instead.
#[test]
fn e75_a_disk_cannot_be_written() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().prepare(&network);
    let place = Host(0);
    let folder = cluster.data_dir(place.0);
    let Some(mounted) = Mounted::new(&folder, "ro") else { return };
    let (status, log) = cluster.node(place).try_start().unwrap_err();
    assert!(!status.success() && log.contains(folder.to_str().unwrap()), "{log}");
    assert!(log.contains("Read-only file system") && !log.contains("panicked"), "{log}");
    drop(mounted);
    cluster.hosts().for_each(|host| cluster.node(host).start());
    cluster.init();
    Client::new(&cluster).take("key", 0, 5);
}

/// The data of a node of one cluster in the same place of another one: it stays a node of
/// its own, takes part in nothing, and says why.
#[test]
fn e65_e75_the_data_directory_of_another_cluster() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().start(&network);
    cluster.wait_whole();
    let token = Client::new(&cluster).take("of-the-first", 0, 250);
    let first = cluster.status(Host(0)).unwrap().identity.unwrap();
    let aside = |cluster: &Cluster<'_>, host: Host| cluster.data_dir(host.0).with_extension("first");
    for host in cluster.hosts() {
        cluster.node(host).stop();
        std::fs::rename(cluster.data_dir(host.0), aside(&cluster, host)).unwrap();
    }
    cluster.hosts().for_each(|host| cluster.node(host).start());
    cluster.init();
    cluster.wait_whole();
    let second = cluster.status(Host(0)).unwrap().identity.unwrap();
    assert_ne!(first, second);
    // One of them gets the data of its place in the first cluster.
    let place = Host(1);
    let kept = cluster.data_dir(place.0).with_extension("second");
    cluster.node(place).stop();
    std::fs::rename(cluster.data_dir(place.0), &kept).unwrap();
    std::fs::rename(aside(&cluster, place), cluster.data_dir(place.0)).unwrap();
    cluster.node(place).start();
    // It tells of both.
    cluster.server(place).wait_log(&first);
    cluster.server(place).wait_log(&second);
    Client::new(&cluster).take("of-the-second", 0, 5);
    let status = cluster.status(place).unwrap();
    assert_eq!((status.identity.as_deref(), status.serving), (Some(&*first), false), "{status:?}");
    // Nothing of either is lost.
    for host in cluster.hosts() {
        cluster.node(host).kill();
        if host != place {
            std::fs::remove_dir_all(cluster.data_dir(host.0)).unwrap();
            std::fs::rename(aside(&cluster, host), cluster.data_dir(host.0)).unwrap();
        }
    }
    cluster.hosts().for_each(|host| cluster.node(host).start());
    cluster.wait_whole();
    Client::new(&cluster).release("of-the-first", token);
}

/// How long grants took, at the median, while `work` went on.
fn median_grant(cluster: &Cluster<'_>) -> Duration {
    let mut client = Client::new(cluster);
    let mut times: Vec<Duration> = (0..50)
        .map(|number| {
            let start = Instant::now();
            client.take(&format!("timed-{number}"), 0, 30);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Whether there can be no slow disks here, as is told then.
#[allow(clippy::print_stderr)] // So that a log tells what was tested.
fn cannot_be_slow() -> bool {
    slow_disks_are_missing().inspect(|why| eprintln!("not tested: {why}")).is_some()
}

/// How slow the disk of one is made: no election waits that long.
const VERY_SLOW: Duration = Duration::from_millis(400);

/// How slow all disks are made: as bad as they come, with several fsyncs a batch.
const SLOW: Duration = Duration::from_millis(40);

/// The majority does not wait for the disk of one.
#[test]
fn e103_the_disk_of_a_follower_is_slow() {
    if !cannot_be_slow() {
        undisturbed(one_slow_disk);
    }
}

fn one_slow_disk() -> Option<()> {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().slow_disks(&[Host(2)], VERY_SLOW).start(&network);
    cluster.wait_whole();
    let leader = cluster.wait_leader();
    if leader == Host(2) {
        // It hands over to one with a fast disk.
        cluster.node(leader).stop();
        cluster.node(leader).start();
        cluster.wait_leader_but(leader);
        cluster.wait_whole();
    }
    let leader = cluster.wait_leader();
    let term = cluster.status(leader).unwrap().term;
    let running = cluster.load(&load());
    running.wait_granted(50, PATIENCE);
    let took = median_grant(&cluster);
    running.wait_granted(50, PATIENCE);
    judge_by(&running.finish(), &rules());
    same_state(&cluster);
    let status = cluster.status(cluster.wait_leader()).unwrap();
    if status.term != term {
        return None;
    }
    assert!(took < VERY_SLOW, "a grant took {took:?}: it waited for the slow disk");
    Some(())
}

/// Everything takes longer; nobody takes a leader that waits for its disk for dead.
#[test]
fn e103_all_disks_are_slow() {
    if !cannot_be_slow() {
        undisturbed(slow_disks);
    }
}

fn slow_disks() -> Option<()> {
    let network = Network::new(4);
    let all = [0, 1, 2].map(Host);
    let cluster = Cluster::builder().durable().slow_disks(&all, SLOW).start(&network);
    cluster.wait_whole();
    let running = cluster.load(&Load { leases: &[10, 30], ..load() });
    running.wait_granted(30, PATIENCE);
    let term = cluster.status(cluster.wait_leader()).unwrap().term;
    running.wait_granted(100, 2 * PATIENCE);
    let took = median_grant(&cluster);
    assert!(took >= SLOW, "a grant took {took:?}, less than a disk");
    let status = cluster.status(cluster.wait_leader()).unwrap();
    judge_by(&running.finish(), &rules());
    same_state(&cluster);
    (status.term == term).then_some(())
}
