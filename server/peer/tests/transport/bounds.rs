//! Whatever the other end does or leaves undone, there is an end to it.

use std::time::Duration;

use ticketing_peer::{CallError, Limits};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::logs::Logs;
use crate::node::*;
use crate::wire::{Wire, frame};

#[tokio::test]
async fn a_peer_takes_so_many_calls_and_no_more() {
    let node = Node::start(config()).await;
    let peer = node.peer(limited(Limits { calls: 3, ..Limits::default() }));
    let mut calls = (0..3).map(|_| peer.call(HOLD, "", soon())).collect::<Vec<_>>();
    assert_eq!(echo(&peer, "one more").await, Err(CallError::Overloaded));
    until("the calls to arrive", || node.state.held() == 3).await;
    node.state.held.lock().unwrap().remove(0).send("done");
    assert_eq!(calls.remove(0).await.unwrap(), "done");
    assert_eq!(echo(&peer, "now").await.unwrap(), "now");
    assert_eq!(node.state.calls(), 4);
}

#[tokio::test]
async fn a_peer_takes_so_many_bytes_and_no_more() {
    let node = Node::start(config()).await;
    let peer = node.peer(limited(Limits { max_body: 1000, call_bytes: 2000, ..Limits::default() }));
    let [first, _second] = [0, 1].map(|_| peer.call(HOLD, vec![0; 1000], soon()));
    assert_eq!(peer.call(HOLD, "x", soon()).await, Err(CallError::Overloaded));
    until("the calls to arrive", || node.state.held() == 2).await;
    node.state.held.lock().unwrap().remove(0).send("");
    first.await.unwrap();
    assert!(peer.call(ECHO, vec![0; 1000], soon()).await.is_ok());
}

/// Whose calls are not answered is not read from any more, and in the end not kept.
#[tokio::test]
async fn a_listener_takes_so_many_calls_of_a_connection_and_no_more() {
    let logs = Logs::collect();
    let stall_timeout = Duration::from_millis(500);
    let node = Node::start(limited(Limits { calls: 3, stall_timeout, ..Limits::default() })).await;
    let mut wire = Wire::admitted(node.at, SECRET, ONE, TWO).await;
    let calls = (0..10).flat_map(|id| frame(HOLD, id, b"")).collect::<Vec<_>>();
    wire.send(&calls, usize::MAX).await;
    until("three calls to arrive", || node.state.held() == 3).await;
    node.state.held.lock().unwrap().remove(0).send("first");
    assert_eq!(wire.frame().await, (0, 0, "first".into()));
    until("a fourth call to arrive", || node.state.calls() == 4).await;
    let start = Instant::now();
    assert!(wire.rest().await.is_empty());
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(node.state.calls(), 4);
    until("the connection to end", || node.state.open() == 0).await;
    let lines = logs.with("the connection of a peer was closed");
    assert!(lines.len() == 1 && lines[0].contains("its calls were not answered"), "{lines:?}");
}

/// Sixty-four megabytes of answers for a dialler that takes none of them.
#[tokio::test]
async fn e98_a_dialler_that_does_not_read_is_not_read_from() {
    let stall_timeout = Duration::from_millis(500);
    let node = Node::start(limited(Limits { stall_timeout, ..Limits::default() })).await;
    let mut wire = Wire::admitted(node.at, SECRET, ONE, TWO).await;
    let size = 64 * 1024_u32;
    let calls = (0..1024).flat_map(|id| frame(SIZED, id, &size.to_le_bytes())).collect::<Vec<_>>();
    wire.send(&calls, usize::MAX).await;
    // Others are served meanwhile.
    let peer = node.peer(config());
    assert_eq!(echo(&peer, "x").await.unwrap(), "x");
    until("the connection to end", || node.state.open() == 1).await;
    // What the system's buffers take, and the megabyte that may wait; not all of it.
    let calls = node.state.calls();
    assert!(calls < 400, "{calls} answers of 64 KiB were made for nobody");
    assert_eq!(echo(&peer, "y").await.unwrap(), "y");
}

/// A dialler that has proved the secret and announces more than may be: not a
/// byte of it is waited for.
#[tokio::test]
async fn a_length_beyond_the_bound_ends_the_connection() {
    for announced in [1001, 1 << 31, u32::MAX] {
        let logs = Logs::collect();
        let node = Node::start(limited(Limits { max_body: 1000, ..Limits::default() })).await;
        let mut wire = Wire::admitted(node.at, SECRET, ONE, TWO).await;
        wire.send(&frame(ECHO, 1, &[7; 1000]), usize::MAX).await;
        assert_eq!(wire.frame().await.2.len(), 1000);
        wire.send(&u32::to_le_bytes(announced), usize::MAX).await;
        assert!(wire.rest().await.is_empty());
        until("the connection to end", || node.state.open() == 0).await;
        let lines = logs.with("the connection of a peer was closed");
        let reason = format!("a frame announces a body of {announced} bytes; the most is 1000");
        assert!(lines.len() == 1 && lines[0].contains(&reason), "{lines:?}");
    }
}

#[tokio::test]
async fn a_length_beyond_the_bound_ends_the_diallers_connection_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let call = peer.call(9, "", soon());
    let mut wire = Wire::accept(&listener, SECRET, TWO, usize::MAX).await;
    wire.frame().await;
    wire.send(&u32::MAX.to_le_bytes(), usize::MAX).await;
    let Err(CallError::Closed(why)) = call.await else { panic!("not closed") };
    assert!(why.contains("announces a body of 4294967295 bytes"), "{why}");
}

/// Three hundred connections that say nothing, or the beginning of something.
#[tokio::test]
async fn a_flood_of_strangers_is_bounded_and_keeps_nobody_out() {
    let logs = Logs::collect();
    let limits = Limits { handshake_timeout: Duration::from_secs(60), ..Limits::default() };
    let node = Node::start(limited(limits)).await;
    let mut strangers = Vec::new();
    for number in 0..300_usize {
        let mut wire = Wire::connect(node.at).await;
        let hello = crate::wire::hello(ONE, TWO);
        wire.send(hello.get(..number % 90).unwrap(), usize::MAX).await;
        strangers.push(wire);
    }
    assert_eq!(echo(&node.peer(config()), "x").await.unwrap(), "x");
    // The oldest had to go, all but 16, of which the peer took one place.
    let mut left = 0;
    for wire in &mut strangers {
        match timeout(Duration::from_millis(20), wire.rest()).await {
            Ok(rest) => assert!(rest.is_empty()),
            Err(_) => left += 1,
        }
    }
    assert_eq!(left, 15);
    assert_eq!(logs.with("have not authenticated yet").len(), 1);
    assert_eq!(node.state.open(), 0, "the peer was dropped, the others never came in");
}

/// Byte after byte, but never done: the deadline is for the whole handshake.
#[tokio::test]
async fn a_handshake_has_a_deadline_that_does_not_move() {
    let logs = Logs::collect();
    let limits = Limits { handshake_timeout: Duration::from_millis(400), ..Limits::default() };
    let node = Node::start(limited(limits)).await;
    let start = Instant::now();
    let mut wire = Wire::connect(node.at).await;
    for byte in crate::wire::hello(ONE, TWO) {
        if wire.0.write_u8(byte).await.is_err() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(wire.rest().await.is_empty());
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(logs.with("the handshake of a peer took too long").len(), 1);
}
