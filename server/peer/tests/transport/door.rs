//! Who is let in, who is not, and who is told what.

use std::time::Duration;

use proptest::prelude::*;
use ticketing_peer::{CallError, ClusterId, Config, Limits, Party, Peer, Refusal, Secret};
use ticketing_protocol::handshake::{BadHandshake, Greeting, Response};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::logs::Logs;
use crate::node::*;
use crate::wire::{self, PREFIX, Wire};

fn another_secret() -> Config {
    Config { secret: Secret::new(b"the secret of another cluster").unwrap(), ..config() }
}

fn refused(refusal: Refusal) -> CallError {
    CallError::Refused(refusal)
}

/// Each with its reason, in the log of both, and before a call is read.
#[tokio::test]
async fn whoever_does_not_belong_is_refused_with_a_reason() {
    let elsewhere = ClusterId([9; 16]);
    let party = |cluster, node| Party { cluster, node };
    let clusters = Refusal::Cluster { dialler: elsewhere, listener: CLUSTER };
    for (from, meant, config, refusal, reason) in [
        (ONE, TWO, another_secret(), Refusal::Secret, "the two sides have different peer secrets"),
        (party(elsewhere, 1), TWO, config(), clusters, "belongs to or means cluster 09090909"),
        (ONE, party(elsewhere, 2), config(), clusters, "belongs to or means cluster 09090909"),
        (ONE, THREE, config(), Refusal::Node { meant: 3, answering: 2 }, "node 3 is meant, but the one"),
        (TWO, TWO, config(), Refusal::Oneself { node: 2 }, "both ends say that they are node 2"),
        (TWO, Party::NOBODY, config(), Refusal::Oneself { node: 2 }, "both ends say that they are node 2"),
    ] {
        let logs = Logs::collect();
        let node = Node::start(crate::node::config()).await;
        let peer = Peer::new(node.at.to_string(), from, meant, config);
        assert_eq!(echo(&peer, "a call").await, Err(refused(refusal)));
        let listener = logs.with("a peer was refused");
        assert!(listener.len() == 1 && listener[0].contains(reason), "{listener:?}");
        assert!(listener[0].contains(&format!("says_it_is={from}")), "{listener:?}");
        let dialler = logs.with("a peer cannot be reached");
        assert!(dialler.len() == 1 && dialler[0].contains(reason), "{dialler:?}");
        assert_eq!((node.state.links(), node.state.calls()), (0, 0));
        let text = logs.text();
        assert!(!text.contains("the secret of"), "{text}");
    }
}

#[tokio::test]
async fn what_the_service_says_against_a_peer_reaches_it() {
    let node = Node::start(config()).await;
    for refusal in [Refusal::Retired, Refusal::NotNow] {
        *node.state.refusal.lock().unwrap() = Some(refusal);
        let logs = Logs::collect();
        assert_eq!(echo(&node.peer(config()), "x").await, Err(refused(refusal)));
        assert_eq!(logs.with(&refusal.to_string()).len(), 2, "{}", logs.text());
    }
    *node.state.refusal.lock().unwrap() = None;
    echo(&node.peer(config()), "x").await.unwrap();
}

/// A process gets its id while it listens.
#[tokio::test]
async fn a_process_is_asked_who_it_is_at_every_handshake() {
    let node = Node::start(config()).await;
    *node.state.me.lock().unwrap() = Party::NOBODY;
    let nobody = refused(Refusal::Node { meant: 2, answering: 0 });
    assert_eq!(echo(&node.peer(config()), "x").await, Err(nobody));
    let anyone = Peer::new(node.at.to_string(), ONE, Party::NOBODY, config());
    echo(&anyone, "x").await.unwrap();
    *node.state.me.lock().unwrap() = TWO;
    echo(&node.peer(config()), "x").await.unwrap();
    let links = node.state.links.lock().unwrap();
    let answering = links.iter().map(|link| (link.meant, link.answering)).collect::<Vec<_>>();
    assert_eq!(answering, [(Party::NOBODY, Party::NOBODY), (TWO, TWO)]);
}

#[tokio::test]
async fn another_version_is_told_ours_and_refused() {
    let logs = Logs::collect();
    let node = Node::start(config()).await;
    let mut wire = Wire::connect(node.at).await;
    let mut newer = wire::hello(ONE, TWO);
    newer[8] = 2;
    wire.send(&newer, usize::MAX).await;
    wire.send(&[0; 500], usize::MAX).await;
    wire.0.shutdown().await.unwrap();
    assert_eq!(wire.rest().await, PREFIX);
    let reason = "the other side speaks version 2 of the peer protocol, this one version 1";
    assert!(logs.with("a peer was refused")[0].contains(reason));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let call = peer.call(ECHO, "", soon());
    let (tcp, _) = listener.accept().await.unwrap();
    let mut wire = Wire(tcp);
    wire.take(wire::HELLO).await;
    wire.send(&newer[..PREFIX.len()], usize::MAX).await;
    assert_eq!(call.await, Err(refused(Refusal::Version { other: 2 })));
    assert!(logs.with("a peer cannot be reached")[0].contains(reason));
}

/// On a socket of its own, from the bytes alone: without the secret one sees a
/// nonce and a refusal, and neither who listens nor a proof.
#[tokio::test]
async fn a_stranger_learns_nothing() {
    let node = Node::start(config()).await;
    let mut wire = Wire::connect(node.at).await;
    let verdict = wire.dial(b"a guess of sixteen bytes", ONE, TWO, usize::MAX).await;
    assert_eq!(verdict, [&[1][..], &[0; 56]].concat());
    assert!(wire.rest().await.is_empty());
}

#[tokio::test]
async fn recorded_and_reflected_handshakes_are_refused() {
    let logs = Logs::collect();
    let node = Node::start(config()).await;
    // Recorded between the two nodes, and played again.
    let mut wire = Wire::connect(node.at).await;
    let hello = wire::hello(ONE, TWO);
    wire.send(&hello, usize::MAX).await;
    let challenge = wire.take(wire::CHALLENGE).await;
    let proof = wire::proof(SECRET, wire::DIALLER, &[&hello, &challenge, &[0; 32]]);
    wire.send(&proof, usize::MAX).await;
    assert_eq!(wire.take(wire::VERDICT).await[0], 0);
    let mut wire = Wire::connect(node.at).await;
    wire.send(&hello, usize::MAX).await;
    assert_ne!(wire.take(wire::CHALLENGE).await, challenge, "a nonce that came twice");
    wire.send(&proof, usize::MAX).await;
    assert_eq!(wire.take(wire::VERDICT).await[0], 1);
    // A dialler that is connected to the listener of its own node.
    let own = Peer::new(node.at.to_string(), TWO, ONE, config());
    assert_eq!(echo(&own, "x").await, Err(refused(Refusal::Node { meant: 1, answering: 2 })));
    assert_eq!(logs.with("a peer was refused").len(), 2, "{}", logs.text());
}

#[tokio::test]
async fn there_are_so_many_connections_and_no_more() {
    let node = Node::start(limited(Limits { connections: 2, ..Limits::default() })).await;
    let mut peers = [0, 1].map(|_| node.peer(config()));
    for peer in &peers {
        echo(peer, "x").await.unwrap();
    }
    assert_eq!(echo(&node.peer(config()), "x").await, Err(refused(Refusal::Full)));
    // Who does not know the secret does not even take a place.
    let stranger = node.peer(another_secret());
    assert_eq!(echo(&stranger, "x").await, Err(refused(Refusal::Secret)));
    for peer in &peers {
        echo(peer, "y").await.unwrap();
    }
    peers[0] = node.peer(config());
    until("the place to be free", || node.state.open() == 1).await;
    let limit = soon();
    while echo(&peers[0], "z").await.is_err() {
        assert!(Instant::now() < limit);
    }
}

#[tokio::test]
async fn refusals_do_not_flood_the_log() {
    let logs = Logs::collect();
    let node = Node::start(config()).await;
    for _ in 0..50 {
        assert_eq!(echo(&node.peer(another_secret()), "x").await, Err(refused(Refusal::Secret)));
    }
    assert_eq!(logs.with("a peer was refused").len(), 1);
    // Another reason is another line.
    *node.state.refusal.lock().unwrap() = Some(Refusal::Retired);
    echo(&node.peer(config()), "x").await.unwrap_err();
    assert_eq!(logs.with("a peer was refused").len(), 2);
}

/// A client waits for the greeting and says nothing.
#[tokio::test]
async fn a_client_on_the_peer_port_is_told_so() {
    let logs = Logs::collect();
    let limits = Limits { handshake_timeout: Duration::from_millis(200), ..Limits::default() };
    let node = Node::start(limited(limits)).await;
    let mut client = Wire::connect(node.at).await;
    assert_eq!(client.rest().await, b"Epeer_port\n");
    let lines = logs.with("said nothing (a client?");
    assert_eq!(lines.len(), 1, "{}", logs.text());
}

#[tokio::test]
async fn a_peer_on_the_client_port_is_told_so() {
    let mut greeting = Vec::new();
    Greeting { extension: true, nonce: "aB3dEf_g", ..Greeting::default() }.encode(&mut greeting);
    for first in [greeting, b"Etoo_many_connections\n".to_vec()] {
        let logs = Logs::collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = peer_at(listener.local_addr().unwrap(), config());
        let call = peer.call(ECHO, "", soon());
        let (tcp, _) = listener.accept().await.unwrap();
        let mut client_port = Wire(tcp);
        client_port.send(&first, usize::MAX).await;
        let start = Instant::now();
        let Err(CallError::Unreachable(why)) = call.await else { panic!("a connection to a client port") };
        assert_eq!(&*why, "this is a port for clients; the peer port is another one");
        // At once: it does not wait for more.
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(logs.with(&why).len(), 1);
        // And the client port sees at the first line feed that this is no client.
        let line = client_port.take(8).await;
        let line = line.strip_suffix(b"\n").unwrap();
        assert_eq!(Response::parse(line), Err(BadHandshake::BadResponse));
    }
}

#[tokio::test]
async fn what_is_no_peer_is_shown_by_its_first_bytes() {
    for (said, reason) in [
        (&b"GET /metrics HTTP/1.1\r\nauthorization: secret\r\n"[..], r#"it began with "GET /metri""#),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "the other side speaks TLS"),
    ] {
        let logs = Logs::collect();
        let node = Node::start(config()).await;
        let mut wire = Wire::connect(node.at).await;
        wire.send(said, usize::MAX).await;
        assert!(wire.rest().await.is_empty());
        let lines = logs.with("a connection to the peer port was refused");
        assert!(lines.len() == 1 && lines[0].contains(reason), "{lines:?}");
    }
}

#[tokio::test]
async fn a_listener_that_stops_leaves_nothing_open() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let pending = peer.call(HOLD, "", soon());
    let mut stranger = Wire::connect(node.at).await;
    until("the call to arrive", || node.state.held() == 1).await;
    let at = node.at;
    let state = node.stop().await;
    assert_eq!(state.open(), 0);
    assert!(stranger.rest().await.is_empty());
    assert!(matches!(pending.await, Err(CallError::Closed(_))));
    assert!(tokio::net::TcpStream::connect(at).await.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// With the secret or without it, nonsense ends a connection and no more than that.
    #[test]
    fn garbage_is_survived(words in prop::collection::vec(any::<u8>(), 1..2000), admitted in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let node = Node::start(limited(Limits { max_body: 1000, ..Limits::default() })).await;
            let mut wire = if admitted {
                Wire::admitted(node.at, SECRET, ONE, TWO).await
            } else {
                Wire::connect(node.at).await
            };
            let _ = wire.0.write_all(&words).await;
            let _ = wire.0.shutdown().await;
            wire.rest().await;
            prop_assert_eq!(echo(&node.peer(config()), "x").await.unwrap(), "x");
            Ok(())
        })?;
    }
}
