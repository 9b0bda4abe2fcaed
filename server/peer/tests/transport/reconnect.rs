//! Connections that are lost, and those that never come about.

use std::time::Duration;

use ticketing_peer::{CallError, Limits, Refusal};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::logs::Logs;
use crate::node::*;
use crate::wire::{Wire, frame};

fn unreachable(result: &ticketing_peer::CallResult) -> &str {
    match result {
        Err(CallError::Unreachable(why)) => why,
        Ok(_) | Err(_) => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn a_missed_deadline_drops_the_connection_and_the_next_call_opens_another() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    echo(&peer, "useful").await.unwrap();
    let start = Instant::now();
    let [late, patient] = [within(100), soon()].map(|deadline| peer.call(HOLD, "", deadline));
    assert_eq!(settled(late).await, Err(CallError::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(100), "never early");
    let lost = Err(CallError::Closed("a call was not answered in time".into()));
    assert_eq!(settled(patient).await, lost);
    assert!(start.elapsed() < Duration::from_secs(10));
    // There is no pause after a connection that was of use.
    assert_eq!(echo(&peer, "again").await.unwrap(), "again");
    assert_eq!(node.state.links(), 2);
    until("the old connection to end", || node.state.open() == 1).await;
    // An answer to a call of the old connection is no answer to one of the new.
    let call = peer.call(HOLD, "", soon());
    until("the call to arrive", || node.state.held() == 3).await;
    let held = std::mem::take(&mut *node.state.held.lock().unwrap());
    for (number, reply) in held.into_iter().enumerate() {
        reply.send(number.to_string());
    }
    assert_eq!(settled(call).await.unwrap(), "2");
}

/// The other end takes everything and says nothing, as a cut cable does.
#[tokio::test]
async fn a_black_hole_is_left_by_every_call_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let accept = || Wire::accept(&listener, SECRET, TWO, usize::MAX);
    let call = peer.call(ECHO, vec![0; 8 << 20], within(200));
    let hole = accept().await;
    assert_eq!(settled(call).await, Err(CallError::TimedOut));
    // A connection that never answered is followed by a pause.
    let call = loop {
        let call = peer.call(ECHO, "x", soon());
        tokio::select! {
            result = call => drop(unreachable(&result)),
            mut wire = accept() => {
                let (_, id, _) = wire.frame().await;
                wire.send(&frame(0, id, b"light"), usize::MAX).await;
                break peer.call(ECHO, "y", soon());
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    drop(hole);
    assert!(matches!(settled(call).await, Err(CallError::Closed(_))));
}

#[tokio::test]
async fn a_call_that_comes_too_late_harms_nobody() {
    let node = Node::start(config()).await;
    let peer = node.peer(config());
    let held = peer.call(HOLD, "", soon());
    until("the call to arrive", || node.state.held() == 1).await;
    assert_eq!(peer.call(ECHO, "late", Instant::now()).await, Err(CallError::TimedOut));
    assert_eq!(echo(&peer, "x").await.unwrap(), "x");
    node.state.held.lock().unwrap().pop().unwrap().send("there");
    assert_eq!(held.await.unwrap(), "there");
    assert_eq!((node.state.links(), node.state.calls()), (1, 2));
}

/// A process that gets no time is late itself: its peer is not.
#[tokio::test]
async fn what_has_arrived_before_the_process_looks_is_not_late() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let (said, heard) = std::sync::mpsc::channel();
    let node = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            let mut wire = Wire::accept(&listener, SECRET, TWO, usize::MAX).await;
            let (_, first, _) = wire.frame().await;
            wire.send(&frame(0, first, b""), usize::MAX).await;
            let (_, second, _) = wire.frame().await;
            said.send("the call is here").unwrap();
            wire.send(&frame(0, second, b"in time"), usize::MAX).await;
            said.send("the answer is there").unwrap();
            assert!(wire.rest().await.is_empty());
        });
    });
    settled(peer.call(ECHO, "", soon())).await.unwrap();
    let deadline = within(1500);
    let call = peer.call(ECHO, "", deadline);
    until("the call to arrive", || heard.try_recv().is_ok()).await;
    // Nothing runs on this thread until the deadline has passed.
    heard.recv().unwrap();
    while Instant::now() <= deadline + Duration::from_millis(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(settled(call).await.unwrap(), "in time");
    drop(peer);
    tokio::task::spawn_blocking(|| node.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_node_that_comes_back_is_found_again() {
    let logs = Logs::collect();
    let at = free_port();
    let peer = peer_at(at, config());
    let start = Instant::now();
    let why = echo(&peer, "nobody").await;
    assert!(unreachable(&why).contains("refused"), "{why:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "not at the deadline of the call");
    for round in 1..=2 {
        let node = Node::listen(TWO, config(), TcpListener::bind(at).await.unwrap());
        let limit = soon();
        while let Err(error) = echo(&peer, "x").await {
            assert!(matches!(error, CallError::Unreachable(_)), "{error}");
            assert!(Instant::now() < limit);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let pending = peer.call(HOLD, "", soon());
        until("the call to arrive", || node.state.held() == 1).await;
        node.stop().await;
        assert!(matches!(pending.await, Err(CallError::Closed(_))), "round {round}");
    }
    assert_eq!(logs.with("a peer cannot be reached").len(), 1, "{}", logs.text());
    assert_eq!(logs.with("a peer is connected again").len(), 2, "{}", logs.text());
    assert_eq!(logs.with("the connection to a peer was lost").len(), 1, "{}", logs.text());
}

/// An alarm is raised once, and once it is over, however long it has lasted.
#[tokio::test]
async fn a_node_that_stays_away_is_told_of_once() {
    let logs = Logs::collect();
    let at = free_port();
    let peer = peer_at(at, config());
    let start = Instant::now();
    // Beyond the time in which a line of one kind is said once anyway.
    while start.elapsed() < Duration::from_secs(12) {
        unreachable(&echo(&peer, "nobody").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(logs.with("a peer cannot be reached").len(), 1, "{}", logs.text());
    let _node = Node::listen(TWO, config(), TcpListener::bind(at).await.unwrap());
    let limit = soon();
    while echo(&peer, "x").await.is_err() {
        assert!(Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(logs.with("a peer").len(), 2, "{}", logs.text());
    assert_eq!(logs.with("a peer is connected again").len(), 1, "{}", logs.text());
}

/// What a dialler has given up must not be heard by a process that wakes: it is older
/// than it seems.
#[test]
fn what_was_given_up_while_a_process_slept_is_not_heard() {
    let node_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = node_runtime.block_on(Node::start(config()));
    let (at, state) = (node.at, std::sync::Arc::clone(&node.state));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let peer = {
        let _in = runtime.enter();
        peer_at(at, config())
    };
    // Both ends have their turn, until a connection is there.
    let (done, told) = std::sync::mpsc::channel();
    let first = peer.clone();
    runtime.spawn(async move { done.send(echo(&first, "first").await) });
    let limit = soon();
    while told.try_recv().is_err() {
        for turn in [&runtime, &node_runtime] {
            turn.block_on(async { tokio::time::sleep(Duration::from_millis(2)).await });
        }
        assert!(Instant::now() < limit);
    }
    // From now on the node sleeps.
    let given_up = runtime.block_on(async {
        let calls = [("given up", within(200)), ("with it", soon())];
        let [one, two] = calls.map(|(body, deadline)| peer.call(ECHO, body, deadline));
        (settled(one).await, settled(two).await)
    });
    assert_eq!(given_up.0, Err(CallError::TimedOut));
    assert!(matches!(given_up.1, Err(CallError::Closed(_))), "{:?}", given_up.1);
    node_runtime.block_on(until("the connection to end", || state.open() == 0));
    assert_eq!(*state.bodies.lock().unwrap(), ["first"]);
}

/// A hundred calls at a time, again and again, to a port where every connection ends at once.
#[tokio::test]
async fn attempts_are_one_at_a_time_and_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = peer_at(listener.local_addr().unwrap(), config());
    let start = Instant::now();
    let mut attempts = 0;
    let accepting = async {
        loop {
            drop(listener.accept().await.unwrap());
            attempts += 1;
        }
    };
    let calling = async {
        while start.elapsed() < Duration::from_millis(600) {
            let calls = (0..100).map(|_| peer.call(ECHO, "", soon())).collect::<Vec<_>>();
            for call in calls {
                assert!(unreachable(&settled(call).await).contains("handshake"));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = accepting => unreachable!(),
        () = calling => {}
    }
    // After 0, 20, 60, 140, 300 and 620 ms at the earliest, and each time at once.
    let elapsed = start.elapsed();
    let most = [0, 20, 60, 140, 300, 620].iter().filter(|at| elapsed >= Duration::from_millis(**at)).count();
    let most = most + (elapsed.as_millis().saturating_sub(620) / 500) as usize;
    assert!((2..=most).contains(&attempts), "{attempts} attempts in {elapsed:?}");
}

/// Nobody accepts, as if packets vanished: what waits ends at its own deadline,
/// and the attempt at its own.
#[tokio::test]
async fn an_attempt_does_not_hang() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits { connect_timeout: Duration::from_millis(300), ..Limits::default() };
    let peer = peer_at(listener.local_addr().unwrap(), limited(limits));
    let start = Instant::now();
    let [short, long] = [within(50), soon()].map(|deadline| peer.call(ECHO, "", deadline));
    assert_eq!(settled(short).await, Err(CallError::TimedOut));
    let late = start.elapsed();
    assert!(late >= Duration::from_millis(50) && late < Duration::from_secs(10), "{late:?}");
    assert!(unreachable(&settled(long).await).contains("no connection within 300ms"));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// A call with a short deadline opens the connection for those that follow.
#[tokio::test]
async fn an_attempt_outlives_the_calls_that_wait_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits { connect_timeout: Duration::from_secs(20), ..Limits::default() };
    let peer = peer_at(listener.local_addr().unwrap(), limited(limits));
    assert_eq!(peer.call(ECHO, "", within(30)).await, Err(CallError::TimedOut));
    let call = peer.call(ECHO, "patient", soon());
    let mut wire = Wire::accept(&listener, SECRET, TWO, usize::MAX).await;
    let (_, id, body) = wire.frame().await;
    assert_eq!((id, body), (1, "patient".into()), "what came too late is not sent");
    wire.send(&frame(0, id, b"answer"), usize::MAX).await;
    assert_eq!(settled(call).await.unwrap(), "answer");
}

/// The address is that of another node now: the call never arrives there.
#[tokio::test]
async fn e65_a_node_that_took_an_address_over_gets_no_call_of_the_old_one() {
    let old = Node::start(config()).await;
    let peer = old.peer(config());
    echo(&peer, "x").await.unwrap();
    let at = old.at;
    old.stop().await;
    let new = Node::listen(THREE, config(), TcpListener::bind(at).await.unwrap());
    let refused = Err(CallError::Refused(Refusal::Node { meant: 2, answering: 3 }));
    let limit = soon();
    loop {
        let result = echo(&peer, "for two").await;
        if result == refused {
            break;
        }
        assert!(result.is_err() && Instant::now() < limit, "{result:?}");
    }
    // And again while the peer pauses.
    assert_eq!(echo(&peer, "for two").await, refused);
    assert_eq!((new.state.links(), new.state.calls()), (0, 0));
}
