//! Every request against every state of its key, where a majority must have it before it
//! is answered. The table is the one that a server in single mode obeys.

use ticketing_chaos::{Cluster, ClusterBuilder, Network};
use ticketing_test_support::{MATRIX_ARGS, play_matrix};

use crate::partitions::same_state;

fn whole_table(builder: ClusterBuilder) {
    let network = Network::new(4);
    let cluster = MATRIX_ARGS.into_iter().fold(builder, ClusterBuilder::arg).start(&network);
    for (extension, run) in [(false, "base"), (true, "extended")] {
        let leader = cluster.address(cluster.wait_leader());
        network.place(cluster.client()).within(|| play_matrix(leader, extension, run));
    }
    same_state(&cluster);
}

#[test]
fn e22_full_matrix_in_memory() {
    whole_table(Cluster::builder());
}

#[test]
fn e22_full_matrix_on_disk() {
    whole_table(Cluster::builder().durable());
}
