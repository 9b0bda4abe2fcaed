//! Nodes that keep what they know on disk.

use ticketing_chaos::{Cluster, Load, Network};
use ticketing_history::{Rules, SECOND};
use ticketing_test_support::Signal;

use crate::client::Client;
use crate::partitions::same_state;
use crate::{PATIENCE, judge_by, load, rounds, rules};

/// All power is lost at once, in the middle of everything, and comes back: whatever was
/// told to anybody is still so.
#[test]
fn e75_all_power_is_lost_and_all_is_on_disk() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().start(&network);
    let running = cluster.load(&Load { leases: &[5, 30], forget: 1, keys: 20, ..load() });
    let mut client = Client::new(&cluster);
    let token = client.take("held-all-along", 0, 250);
    let ids = |cluster: &Cluster<'_>| -> Vec<Option<u64>> {
        cluster.hosts().map(|host| cluster.status(host).and_then(|status| status.node)).collect()
    };
    let before = ids(&cluster);
    for _ in 0..rounds(3) {
        running.wait_granted(50, PATIENCE);
        running.remarking("all power is lost", || {
            cluster.hosts().for_each(|host| cluster.server(host).signal(Signal::KILL));
            cluster.hosts().for_each(|host| cluster.node(host).kill());
        });
        cluster.hosts().for_each(|host| cluster.node(host).start());
        cluster.wait_leader();
        assert!(Client::new(&cluster).is_held("held-all-along"), "it was lost");
    }
    running.wait_granted(50, PATIENCE);
    Client::new(&cluster).release("held-all-along", token);
    // After a start of all nodes a lease may begin anew.
    judge_by(
        &running.finish(),
        &Rules { late_expiry: Some(90 * SECOND), late_answer: Some(60 * SECOND), ..rules() },
    );
    assert_eq!(ids(&cluster), before, "a node with a disk comes back as itself");
    same_state(&cluster);
}

/// One after the other comes back as itself, and nobody takes its place meanwhile.
#[test]
fn e72_nodes_with_a_disk_come_back_as_themselves() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().start(&network);
    let running = cluster.load(&load());
    for host in cluster.hosts() {
        running.wait_granted(30, PATIENCE);
        running.remarking(&format!("{host:?} is killed"), || cluster.node(host).restart());
        cluster.wait_whole();
        assert_eq!(cluster.status(host).unwrap().node, Some(host.0 as u64 + 1));
    }
    running.wait_granted(30, PATIENCE);
    judge_by(&running.finish(), &rules());
    same_state(&cluster);
}

/// A node with a disk is told to stop and its data directory is given to another place.
#[test]
fn e75_the_data_directory_of_another_node() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().durable().start(&network);
    cluster.wait_whole();
    let [one, other, _] = cluster.hosts().collect::<Vec<_>>()[..] else { panic!("three hosts") };
    cluster.node(one).kill();
    cluster.node(other).kill();
    let (ours, theirs) = (cluster.data_dir(one.0), cluster.data_dir(other.0));
    let aside = ours.with_extension("aside");
    std::fs::rename(&ours, &aside).unwrap();
    std::fs::rename(&theirs, &ours).unwrap();
    let (status, log) = cluster.node(one).try_start().unwrap_err();
    assert!(!status.success() && log.contains("is of node b") && log.contains("--slot"), "{log}");
    std::fs::rename(&ours, &theirs).unwrap();
    std::fs::rename(&aside, &ours).unwrap();
    cluster.node(one).start();
    cluster.node(other).start();
    cluster.wait_whole();
    Client::new(&cluster).take("key", 0, 5);
}
