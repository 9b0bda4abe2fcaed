//! Calls and their answers.

use ticketing_peer::{CallError, Limits};
use tokio::net::TcpListener;

use crate::logs::Logs;
use crate::node::*;
use crate::wire::{Wire, frame};

#[tokio::test]
async fn bodies_of_every_size_come_back() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    for size in [0, 1, 13, 4095, 4096, 32 * 1024, 65_536, 1 << 20, 16 << 20] {
        let body = (0..=250).cycle().take(size).collect::<Vec<u8>>();
        let answer = peer.call(ECHO, body.clone(), soon()).await.unwrap();
        assert!(answer == body, "{size} bytes");
    }
    let max = 16 << 20;
    let too_large = peer.call(ECHO, vec![0; max as usize + 1], soon()).await;
    assert_eq!(too_large, Err(CallError::TooLarge { bytes: max as usize + 1, max }));
    let failed = peer.call(SIZED, (max + 1).to_le_bytes().to_vec(), soon()).await;
    let expected = "the answer has 16777217 bytes; the most is 16777216";
    assert_eq!(failed, Err(CallError::Failed(expected.into())));
    // All of it over one connection.
    assert_eq!(node.state.links(), 1);
}

#[tokio::test]
async fn both_ends_know_who_talks() {
    let node = Node::start(config()).await;
    echo(&node.peer(config()), "x").await.unwrap();
    let link = node.state.links.lock().unwrap()[0];
    assert_eq!((link.from, link.meant, link.answering), (ONE, TWO, TWO));
}

/// Several threads, and futures that are polled in the wrong order or never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_arrive_in_the_order_in_which_they_were_made() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let body = |number: u32| number.to_le_bytes().to_vec();
    let mut calls = (0..1000).map(|number| peer.call(ECHO, body(number), soon())).collect::<Vec<_>>();
    while let Some(call) = calls.pop() {
        // The last one first.
        let number = u32::try_from(calls.len()).unwrap();
        assert_eq!(call.await.unwrap(), body(number));
    }
    for number in 1000..1010 {
        drop(peer.call(ECHO, body(number), soon()));
    }
    echo(&peer, "end").await.unwrap();
    let bodies = node.state.bodies.lock().unwrap();
    let expected = (0..1010).map(body).chain([b"end".to_vec()]);
    assert_eq!(*bodies, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let calls = (0..100_u32).map(|_| peer.call(HOLD, "", soon())).collect::<Vec<_>>();
    until("all calls to arrive", || node.state.held() == 100).await;
    // From the middle outwards.
    let mut held =
        std::mem::take(&mut *node.state.held.lock().unwrap()).into_iter().enumerate().collect::<Vec<_>>();
    held.sort_by_key(|(number, _)| number.abs_diff(50));
    for (number, reply) in held {
        reply.send(number.to_string());
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), number.to_string());
    }
}

#[tokio::test]
async fn a_call_that_fails_says_why_and_the_connection_stays() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let failed = |why: &str| Err(CallError::Failed(why.into()));
    assert_eq!(peer.call(FAIL, "not today", soon()).await, failed("not today"));
    let long = "\u{e9}".repeat(1000);
    assert_eq!(peer.call(FAIL, long.clone(), soon()).await, failed(&long[..1024]));
    let dropped = failed("the node dropped the call without an answer");
    assert_eq!(peer.call(DROP, "", soon()).await, dropped);
    assert_eq!(echo(&peer, "still here").await.unwrap(), "still here");
    assert_eq!(node.state.links(), 1);
}

#[tokio::test]
async fn clones_share_a_connection_and_the_last_one_closes_it() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let clone = peer.clone();
    echo(&peer, "x").await.unwrap();
    let pending = peer.call(HOLD, "", soon());
    drop(peer);
    echo(&clone, "y").await.unwrap();
    assert_eq!((node.state.links(), node.state.open()), (1, 1));
    drop(clone);
    assert!(matches!(pending.await, Err(CallError::Closed(_))));
    until("the connection to close", || node.state.open() == 0).await;
}

/// One byte at a time, in the handshake and after it, in both directions.
#[tokio::test]
async fn nothing_depends_on_how_the_bytes_are_cut() {
    let node = Node::start(config()).await;
    let mut wire = Wire::connect(node.at).await;
    assert_eq!(wire.dial(SECRET, ONE, TWO, 1).await[0], 0);
    let calls = [frame(ECHO, 7, b"first"), frame(ECHO, u64::MAX, b""), frame(ECHO, 7, b"again")].concat();
    wire.send(&calls, 1).await;
    assert_eq!(wire.frame().await, (0, 7, "first".into()));
    assert_eq!(wire.frame().await, (0, u64::MAX, "".into()));
    assert_eq!(wire.frame().await, (0, 7, "again".into()));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let calls = [peer.call(9, "one", soon()), peer.call(8, "two", soon())];
    let mut wire = Wire::accept(&listener, SECRET, TWO, 1).await;
    let (one, two) = (wire.frame().await, wire.frame().await);
    assert_eq!((one.0, one.2, two.0, two.2), (9, "one".into(), 8, "two".into()));
    wire.send(&[frame(0, two.1, b"to two"), frame(1, one.1, b"to one")].concat(), 1).await;
    let [one, two] = calls;
    assert_eq!(one.await, Err(CallError::Failed("to one".into())));
    assert_eq!(two.await.unwrap(), "to two");
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    for (kind, id) in [(0, 99), (2, 1)] {
        let logs = Logs::collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = peer_at(listener.local_addr().unwrap(), config());
        let call = peer.call(9, "", soon());
        let mut wire = Wire::accept(&listener, SECRET, TWO, usize::MAX).await;
        assert_eq!(wire.frame().await.1, 1);
        wire.send(&frame(kind, id, b""), usize::MAX).await;
        let Err(CallError::Closed(why)) = call.await else { panic!("not closed") };
        assert!(why.contains("it answered what was not asked"), "{why}");
        assert_eq!(logs.with("the connection to a peer was lost").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_at_once() {
    let config = limited(Limits { calls: 16_384, ..Limits::default() });
    let node = Node::start(limited(Limits::default())).await;
    let peer = node.peer(config);
    let start = std::time::Instant::now();
    let calls = (0..10_000_u32).map(|number| peer.call(ECHO, number.to_le_bytes().to_vec(), soon()));
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), u32::try_from(number).unwrap().to_le_bytes()[..]);
    }
    let took = start.elapsed();
    assert!(took.as_secs() < 10, "{took:?}");
    assert_eq!(node.state.links(), 1);
}

/// No task of either end outlives it, whatever was under way.
#[tokio::test]
async fn nothing_is_left_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..3 {
        let node = Node::start(config()).await;
        let peers = [node.peer(config()), node.peer(config()), peer_at(free_port(), config())];
        let pending = peers.each_ref().map(|peer| peer.call(HOLD, "", soon()));
        let stranger = Wire::connect(node.at).await;
        until("the calls to arrive", || node.state.held() == 2).await;
        drop(peers);
        let state = node.stop().await;
        for call in pending {
            assert!(matches!(call.await, Err(CallError::Closed(_) | CallError::Unreachable(_))));
        }
        drop(stranger);
        until("the tasks to end", || tasks() == before).await;
        // Whoever held the state has let go of it.
        assert_eq!(std::sync::Arc::strong_count(&state), 1);
    }
}
