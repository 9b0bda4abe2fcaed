//! What is wrong is said, with what to do about it, and nothing is changed.

use ticketing_chaos::{Cluster, Host, Network};
use ticketing_test_support::{Raw, Server};

use crate::client::Client;

/// A server that must not start.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let started = Server::builder().args(args).try_start();
    let (status, log) = started.err().unwrap_or_else(|| panic!("it started with {args:?}"));
    assert!(!status.success(), "it ended well with {args:?}: {log}");
    assert!(!log.contains("panicked"), "{log}");
    log
}

#[test]
fn lists_of_nodes_that_make_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret that is long enough").unwrap();
    let secret = secret.to_str().unwrap();
    let with = |nodes: &str| refused(&["--cluster", nodes, "--slot", "a", "--peer-secret-file", secret]);
    let a = "a=127.0.0.1:1@127.0.0.1:2";
    let (b, c, d) = ("b=127.0.0.1:3@127.0.0.1:4", "c=127.0.0.1:5@127.0.0.1:6", "d=127.0.0.1:7@127.0.0.1:8");
    for (nodes, says) in [
        (format!("{a},{b}"), "3 or 5"),
        (format!("{a},{b},{c},{d}"), "3 or 5"),
        (a.to_owned(), "3 or 5"),
        (format!("{a},{b},a=127.0.0.1:5@127.0.0.1:6"), "twice"),
        (format!("{a},{b},c=127.0.0.1:5@127.0.0.1:4"), "127.0.0.1:4 is used twice"),
        (format!("{a},{b},c=127.0.0.1:1@127.0.0.1:6"), "127.0.0.1:1 is used twice"),
        (format!("{a},{b},c"), "expected NAME="),
        (String::new(), "3 or 5"),
    ] {
        let log = with(&nodes);
        assert!(log.contains(says), "{nodes}: {log}");
    }
    let nodes = format!("{a},{b},{c}");
    let all = ["--cluster", &nodes, "--slot", "a", "--peer-secret-file", secret];
    let log = refused(&["--cluster", &nodes, "--slot", "x", "--peer-secret-file", secret]);
    assert!(log.contains("--slot"), "{log}");
    assert!(refused(&all[..4]).contains("--peer-secret-file"));
    assert!(refused(&[&all[..2], &all[4..]].concat()).contains("--slot"));
    std::fs::write(secret, "short").unwrap();
    let log = refused(&all);
    assert!(log.contains("at least 16") && !log.contains("short"), "{log}");
    std::fs::remove_file(secret).unwrap();
    assert!(refused(&all).contains(secret));
}

/// A node that was given another secret takes part in nothing, and both sides say why.
#[test]
fn e21_another_secret_of_the_peers() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let place = cluster.hosts().last().unwrap();
    cluster.node(place).kill();
    let right = std::fs::read(cluster.secret()).unwrap();
    std::fs::write(cluster.secret(), "another secret of the same length").unwrap();
    cluster.node(place).start();
    cluster.server(place).wait_log("different peer secrets");
    let (done, said) = cluster.try_init(&["--wait", "2"]);
    assert!(!done && said.contains("different peer secrets"), "{said}");
    assert_eq!(cluster.status(place).unwrap().role, "blank");
    Client::new(&cluster).take("key", 0, 5);
    std::fs::write(cluster.secret(), right).unwrap();
    cluster.node(place).restart();
    cluster.wait_whole();
}

/// Clients on the port of the peers, and peers on that of the clients.
#[test]
fn e21_ports_that_are_mixed_up() {
    let network = Network::new(4);
    let cluster = Cluster::builder().start(&network);
    let peers = cluster.peer_address(Host(0));
    network.place(cluster.client()).within(|| {
        // A client waits for a greeting.
        Raw::connect(peers).expect_error("peer_port");
    });
    let secret = cluster.secret();
    let places = cluster.places();
    let mixed = places.split(',').map(|place| {
        let (name, addresses) = place.split_once('=').unwrap();
        let (peer, client) = addresses.split_once('@').unwrap();
        format!("{name}={client}@{peer}")
    });
    let mixed = mixed.collect::<Vec<_>>().join(",");
    let secret = secret.to_str().unwrap();
    let args = ["init", "--wait", "2", "--cluster", &mixed, "--peer-secret-file", secret];
    let (done, said) = cluster.run(Host(0), &args);
    assert!(!done && said.contains("client"), "{said}");
    Client::new(&cluster).take("key", 0, 5);
}

/// A cluster that runs is not initialised again, and a place that is alive is not taken.
#[test]
fn e67_a_cluster_that_lives_is_left_alone() {
    let network = Network::new(5);
    let builder = Cluster::builder();
    let mut cluster = builder.start(&network);
    for args in [&[][..], &["--new-identity"]] {
        let (done, said) = cluster.try_init(args);
        assert!(!done && said.contains("nothing was changed"), "{said}");
    }
    let mut second = builder.successor(&cluster, Host(1), Host(4));
    second.start();
    second.server().wait_log("was alive within the last second");
    second.kill();
    let (done, said) = cluster.run(Host(0), &["replace", "nobody", "--admin", &cluster.admin(Host(0))]);
    assert!(!done && said.contains("nobody"), "{said}");
    cluster.node(Host(2)).kill();
    // Another one as well would risk the majority.
    let refused = || {
        let (done, said) = cluster.try_replace(Host(1));
        (!done).then_some(said)
    };
    let mut said = None;
    ticketing_test_support::wait_until("a refusal", crate::PATIENCE, || {
        said = refused();
        said.is_some()
    });
    assert!(said.as_ref().is_some_and(|said| said.contains("another node is down")), "{said:?}");
}
