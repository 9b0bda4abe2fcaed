//! Nodes of a cluster, as clients and operators see them.

use std::process::Command;

use ticketing_test_support::{Cluster, PATIENCE, Raw, Reply, binary, wait_until};

fn run(args: &[&str]) -> (bool, String) {
    let output = Command::new(binary("ticketing-server", "ticketing-server")).args(args).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn who_does_not_lead_says_busy_and_where_to_ask() {
    let cluster = Cluster::start(3, false);
    let leader = cluster.leader();
    let address = cluster.node(leader).addr().to_string();
    let other = (leader + 1) % 3;
    wait_until("the follower knows the leader", PATIENCE, || {
        let mut raw = Raw::connect(cluster.node(other).addr());
        let nonce = raw.read_greeting();
        raw.send(format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)));
        raw.read() == Reply::Leader(address.clone())
    });
    let mut raw = Raw::open(cluster.node(other).addr());
    raw.acquire("k", 7, 30, 10);
    raw.expect(&Reply::busy(7, "k"));
    raw.expect(&Reply::Moved(address.clone()));
    raw.release("k", 5);
    raw.expect(&Reply::Moved(address));
}

#[test]
fn clients_are_told_of_a_new_leader_and_locks_stay_held() {
    let mut cluster = Cluster::start(3, false);
    let leader = cluster.leader();
    let token = Raw::open(cluster.node(leader).addr()).take("held", 1, 250);
    let other = (leader + 1) % 3;
    let mut watcher = Raw::open(cluster.node(other).addr());
    cluster.kill(leader);
    let next = cluster.leader();
    let address = cluster.node(next).addr().to_string();
    // Between the two it may be told that nobody leads.
    while watcher.read() != Reply::Leader(address.clone()) {}
    let mut raw = Raw::open(cluster.node(next).addr());
    raw.acquire("held", 2, 0, 10);
    raw.expect(&Reply::timed_out(2, "held"));
    raw.release("held", token);
    raw.expect(&Reply::released(token, "held"));
    assert!(raw.take("held", 3, 10) > token);
}

#[test]
fn a_leader_that_is_told_to_stop_hands_over_and_refuses_its_waiters() {
    let mut cluster = Cluster::start(3, false);
    let leader = cluster.leader();
    let mut raw = Raw::open(cluster.node(leader).addr());
    let token = raw.take("k", 1, 250);
    raw.acquire("k", 2, 250, 10);
    let server = cluster.nodes[leader].take().unwrap();
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    raw.expect(&Reply::busy(2, "k"));
    let next = cluster.leader();
    let mut raw = Raw::open(cluster.node(next).addr());
    raw.release("k", token);
    raw.expect(&Reply::released(token, "k"));
}

#[test]
fn a_blank_node_serves_nobody() {
    let cluster = Cluster::blank(3, false);
    let mut raw = Raw::connect(cluster.node(0).addr());
    let nonce = raw.read_greeting();
    assert!(!raw.greeting().contains("domain"), "{}", raw.greeting());
    raw.send(format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)));
    raw.expect_error("not_active");
    assert_eq!(cluster.node(0).admin_get("/readyz").0, 503);
    assert_eq!(cluster.node(0).admin_get("/healthz").0, 200);
    let (success, said) = cluster.operate(&["init"]);
    assert!(success && said.contains("initialised cluster"), "{said}");
    let _ = cluster.leader();
    let (success, said) = cluster.operate(&["init"]);
    assert!(!success && said.contains("already"), "{said}");
}

#[test]
fn an_operator_sees_the_cluster() {
    let cluster = Cluster::start(3, false);
    let leader = cluster.leader();
    let admin = cluster.node(leader).admin_addr().to_string();
    wait_until("all nodes are heard", PATIENCE, || cluster.says(leader, "\"role\":\"leader\""));
    let (success, page) = run(&["status", "--admin", &admin]);
    assert!(success && page.contains("leader") && page.contains("voter"), "{page}");
    let (success, json) = run(&["status", "--admin", &admin, "--json"]);
    assert!(success);
    let json = serde_json::from_str::<serde_json::Value>(&json).unwrap();
    assert_eq!(json["cluster"]["voters"].as_array().unwrap().len(), 3);
    assert_eq!(json["mode"], "cluster");
    let metric = cluster.node(leader).metric("ticketing_leading");
    assert_eq!(metric, Some(1.0));
    // Any node can be asked.
    for index in 0..3 {
        let admin = cluster.node(index).admin_addr().to_string();
        wait_until("it may be replaced", PATIENCE, || run(&["replace", "b", "--admin", &admin]).0);
        let (success, said) = run(&["replace", "z", "--admin", &admin]);
        assert!(!success && said.contains("no node"), "{said}");
    }
}

#[test]
fn nothing_is_replaced_while_another_node_is_down() {
    let mut cluster = Cluster::start(3, false);
    let leader = cluster.leader();
    let (down, up) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(down);
    let name = ["a", "b", "c"][up];
    let admin = cluster.node(leader).admin_addr().to_string();
    wait_until("the leader misses it", PATIENCE, || {
        let (success, said) = run(&["replace", name, "--admin", &admin]);
        !success && said.contains("another node is down")
    });
}

#[test]
fn durable_nodes_come_back_as_themselves_after_all_were_killed() {
    let mut cluster = Cluster::start(3, true);
    let leader = cluster.leader();
    let mut raw = Raw::open(cluster.node(leader).addr());
    let held = raw.take("held", 1, 250);
    let freed = raw.take("freed", 2, 250);
    raw.release("freed", freed);
    raw.expect(&Reply::released(freed, "freed"));
    (0..3).for_each(|index| cluster.kill(index));
    (0..3).for_each(|index| cluster.restart(index));
    let leader = cluster.leader();
    assert!((0..3).all(|index| cluster.says(index, &format!("\"node\":{}", index + 1))));
    let mut raw = Raw::open(cluster.node(leader).addr());
    raw.acquire("held", 3, 0, 10);
    raw.expect(&Reply::timed_out(3, "held"));
    assert!(raw.take("freed", 4, 10) > freed);
    raw.release("held", held);
    raw.expect(&Reply::released(held, "held"));
}

#[test]
fn a_peer_with_another_secret_stays_outside() {
    let cluster = Cluster::blank(3, false);
    let mut command = Command::new(binary("ticketing-server", "ticketing-server"));
    command.args(["init", "--wait", "1", "--cluster", cluster.places()]);
    let output = command.env("TICKETING_PEER_SECRET", "quite another secret").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("secret"), "{said}");
    wait_until("the nodes say so", PATIENCE, || cluster.node(0).log().contains("secret"));
}
