//! State that is in memory only.

use std::time::Duration;

use ticketing::{Domain, ErrorKind, TicketBroker};
use ticketing_chaos::{Cluster, Host, Network, Status};
use ticketing_test_support::Raw;

use crate::client::Client;
use crate::{expect_not_active, heard, is_definite};

/// A place is emptied and filled again, first a follower's, then the leader's: a
/// hundred locks are still held, and can be released.
#[test]
fn e72_restarts_keep_what_is_held() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().start(&network);
    let key = |number: u64| format!("key-{number}");
    for leads in [false, true] {
        let mut client = Client::new(&cluster);
        let tokens: Vec<u64> = (0..100).map(|number| client.take(&key(number), 0, 250)).collect();
        let leader = cluster.wait_leader();
        let place = cluster.hosts().find(|&host| (host == leader) == leads).unwrap();
        cluster.node(place).restart();
        cluster.wait_whole();
        let mut client = Client::new(&cluster);
        for (number, token) in (0..).zip(tokens) {
            assert!(client.is_held(&key(number)), "{number} was lost");
            client.release(&key(number), token);
        }
    }
}

/// Power is lost everywhere: nothing comes back by itself; what an operator begins in its
/// place has another identity, and higher tokens, and old clients are told.
#[test]
fn e75_e77_all_power_is_lost() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().noted().start(&network);
    let old = cluster.status(Host(0)).unwrap().identity.unwrap();
    let token = Client::new(&cluster).take("key", 0, 250);
    cluster.hosts().for_each(|host| cluster.node(host).kill());
    cluster.hosts().for_each(|host| cluster.node(host).start());
    std::thread::sleep(Duration::from_secs(4));
    let is_blank = |status: &Status| status.role == "blank" && status.identity.is_none();
    assert!(cluster.hosts().all(|host| cluster.status(host).is_some_and(|status| is_blank(&status))));
    let (done, said) = cluster.try_init(&[]);
    assert!(!done && said.contains(&old) && said.contains("--new-identity"), "{said}");
    let (done, said) = cluster.try_init(&["--new-identity"]);
    assert!(done, "{said}");
    let leader = cluster.wait_leader();
    let new = cluster.status(leader).unwrap().identity.unwrap();
    assert_ne!(new, old);
    let next = Client::new(&cluster).take("key", 0, 250);
    assert!(next > token, "{next} after {token}");
    let (done, said) = cluster.try_init(&["--new-identity"]);
    assert!(!done && said.contains(&new), "a cluster that lives was replaced: {said}");
    let domain = Domain::parse(&old).unwrap();
    let kind = network.place(cluster.client()).within(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let addresses = cluster.addresses().into_iter().map(|addr| addr.to_string());
            let broker = TicketBroker::builder().addresses(addresses).expect_domain(domain).build().unwrap();
            let asked = broker.acquire("other", Duration::from_secs(2), Duration::from_secs(5)).await;
            asked.map(drop).unwrap_err().kind()
        })
    });
    assert_eq!(kind, ErrorKind::WrongDomain);
}

/// A process that is in no cluster, or is about to be, answers no client.
#[test]
fn e78_a_blank_process_serves_nobody() {
    let network = Network::new(4);
    let mut cluster = Cluster::builder().prepare(&network);
    cluster.node(Host(0)).start();
    let refused = |cluster: &Cluster<'_>| {
        network.place(cluster.client()).within(|| {
            expect_not_active(cluster.address(Host(0)));
        });
    };
    refused(&cluster);
    cluster.node(Host(1)).start();
    cluster.node(Host(2)).start();
    std::thread::sleep(Duration::from_secs(1));
    refused(&cluster);
    cluster.init();
    cluster.wait_leader();
    // A place that is emptied serves again only as a node.
    let leader = cluster.wait_leader();
    let place = cluster.hosts().find(|&host| host != leader).unwrap();
    let token = Client::new(&cluster).take("key", 0, 250);
    cluster.node(place).restart();
    network.place(cluster.client()).within(|| {
        loop {
            let mut session = Raw::connect(cluster.address(place));
            match session.greet(b"", false) {
                Ok(_) => {
                    session.release("key", token + 1);
                    session.acquire("key", 5, 0, 5);
                    let said = heard(&mut session, Duration::from_millis(300));
                    assert!(!said.iter().any(is_definite), "{said:?}");
                    break;
                }
                Err(said) => assert_eq!(said, "E(not_active)"),
            }
        }
    });
    cluster.wait_whole();
}
