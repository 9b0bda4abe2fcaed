//! The end of a broker: in order, in time, and complete.

use std::time::{Duration, Instant};

use ticketing::{ErrorKind, TicketBroker};

use crate::common::lock_server::LockServer;
use crate::common::scripted::{Asked, Intro, Scripted};
use crate::common::{millis, poll_once, secs, soon, wait_until};

/// How long a close takes.
async fn closing(broker: &TicketBroker) -> Duration {
    let start = Instant::now();
    soon("the close", broker.close()).await;
    start.elapsed()
}

#[tokio::test]
async fn an_idle_broker_closes_at_once_and_twice() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    broker.wait_ready(secs(20)).await.unwrap();
    let other = broker.clone();
    tokio::join!(closing(&broker), closing(&other));
    assert!(closing(&broker).await < secs(2));
    wait_until("the connections end", || server.counts().connections == 0).await;
    assert!(broker.connections().iter().all(|connection| !connection.open));
    assert_eq!(broker.acquire("k", secs(1), secs(1)).await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(broker.release("k", 1).await.unwrap_err().is_closed());
    assert!(broker.wait_ready(secs(1)).await.unwrap_err().is_closed());
    let placement = broker.acquire("k", secs(1), secs(1)).placement();
    assert!(placement.place().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn no_task_is_left_after_a_close() {
    let server = LockServer::start();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    broker.acquire("k", secs(20), secs(20)).await.unwrap().release().await.unwrap();
    assert!(tasks() > before);
    broker.close().await;
    wait_until("all tasks end", || tasks() == before).await;
}

#[tokio::test]
async fn what_waits_in_a_queue_leaves_it_and_ends_closed() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let held = broker.acquire("k", secs(60), secs(200)).await.unwrap();
    let waiting = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    wait_until("it waits", || server.counts().waiting == 1).await;
    let took = closing(&broker).await;
    assert!(took < secs(2), "{took:?}");
    assert_eq!(soon("the waiter", waiting).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(server.counts().waiting, 0);
    // What was held stays held until its lease ends: it is not ours to take.
    assert_eq!(server.counts().held, 1);
    assert!(held.release().await.unwrap_err().is_closed());
}

#[tokio::test]
async fn what_was_not_sent_ends_closed_and_what_nobody_answers_is_indeterminate() {
    for extension in [true, false] {
        let server = Scripted::bind().await;
        let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
        let intro = if extension { Intro::leader("me:1") } else { Intro::base() };
        let mut peer = server.accept(&intro).await;
        broker.wait_ready(secs(20)).await.unwrap();
        let sent = tokio::spawn(broker.acquire("k", secs(60), secs(60)));
        let owner = peer.next_acquire().await;
        let mut unsent = broker.acquire("k", secs(60), secs(60));
        assert!(poll_once(&mut unsent).is_pending());
        let (took, outcome) = tokio::join!(closing(&broker), soon("the unsent one", unsent));
        assert!(took < secs(5), "{took:?}");
        assert!(outcome.unwrap_err().is_closed());
        assert!(soon("the sent one", sent).await.unwrap().unwrap_err().is_indeterminate());
        if extension {
            assert_eq!(peer.next().await, Asked::Cancel { owner, key: "k".to_owned() });
        }
        peer.ended().await;
    }
}

#[tokio::test]
async fn a_grant_that_crosses_the_close_is_given_back() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(60)));
    let owner = peer.next_acquire().await;
    let serve = async {
        assert_eq!(peer.next().await, Asked::Cancel { owner, key: "k".to_owned() });
        peer.grant(owner, 7, 60_000, "k").await;
        assert_eq!(peer.next_release().await, 7);
        peer.released(7, "k").await;
        peer.ended().await;
    };
    tokio::join!(serve, closing(&broker));
    assert!(soon("the acquire", acquire).await.unwrap().unwrap_err().is_closed());
}

#[tokio::test]
async fn compensations_go_out_before_the_end() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let mut tickets = Vec::new();
    for key in 0..200 {
        tickets.push(broker.acquire(&key.to_string(), secs(60), secs(200)).await.unwrap());
    }
    drop(tickets);
    let took = closing(&broker).await;
    assert!(server.is_clean(), "{:?} after {took:?}", server.counts());
}

#[tokio::test]
async fn a_close_waits_for_releases_and_no_longer_than_two_seconds() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let release = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.release("k", 7).await })
    };
    assert_eq!(peer.next_release().await, 7);
    let took = closing(&broker).await;
    assert!(took >= secs(1) && took < secs(4), "{took:?}");
    let error = soon("the release", release).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReleaseUnconfirmed);
}

#[tokio::test]
async fn a_close_after_a_release_that_was_not_confirmed_is_no_longer() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let (told, asked) = tokio::join!(broker.release("k", 7), peer.next_release());
    assert_eq!(asked, 7);
    assert_eq!(told.unwrap_err().kind(), ErrorKind::ReleaseUnconfirmed);
    let took = closing(&broker).await;
    assert!(took < secs(4), "{took:?}");
}

#[tokio::test]
async fn a_close_that_is_dropped_goes_on() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    broker.wait_ready(secs(20)).await.unwrap();
    assert!(poll_once(&mut Box::pin(broker.close())).is_pending());
    wait_until("it closes all the same", || server.counts().connections == 0).await;
}

#[test]
fn a_runtime_that_goes_away_ends_everything_and_hangs_nobody() {
    let server = LockServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (broker, held) = runtime.block_on(async {
        let broker = TicketBroker::connect([&server.address]).unwrap();
        let held = broker.acquire("k", secs(60), secs(200)).await.unwrap();
        (broker, held)
    });
    // Callers on another runtime: one waits at the server, one for a session.
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting = other.spawn(broker.acquire("k", secs(60), secs(200)));
    other.block_on(wait_until("it waits", || server.counts().waiting == 1));
    runtime.shutdown_timeout(secs(5));
    other.block_on(async {
        let error = soon("the waiter", waiting).await.unwrap().unwrap_err();
        assert!(error.is_indeterminate(), "{error:?}");
        assert!(soon("a late one", broker.acquire("k", secs(60), secs(1))).await.unwrap_err().is_closed());
        assert!(soon("the release", held.release()).await.unwrap_err().is_closed());
        soon("the close", broker.close()).await;
        assert!(soon("verify", error.verify(secs(60))).await.unwrap_err().is_closed());
    });
}

#[test]
fn a_runtime_that_goes_away_while_an_acquire_waits_for_a_session() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let broker = runtime.block_on(async { TicketBroker::connect(["localhost:1"]).unwrap() });
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting = other.spawn(broker.acquire("k", secs(60), secs(200)));
    let releasing = other.spawn(async move { broker.release("k", 1).await });
    std::thread::sleep(millis(100));
    runtime.shutdown_timeout(secs(5));
    other.block_on(async {
        assert!(soon("the waiter", waiting).await.unwrap().unwrap_err().is_closed());
        assert!(soon("the release", releasing).await.unwrap().unwrap_err().is_closed());
    });
}
