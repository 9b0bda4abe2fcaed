//! Which session a request goes to: what the servers say about who leads.

use std::time::Instant;

use ticketing::TicketBroker;
use ticketing_protocol::ServerFrame;

use crate::common::scripted::{Asked, Intro, Scripted};
use crate::common::{millis, secs, soon, wait_until};

fn is_open(broker: &TicketBroker, connection: usize) -> bool {
    broker.connections()[connection].open
}

#[tokio::test]
async fn requests_take_turns_over_sessions_that_lead() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let mut peers = [server.accept_leading().await, server.accept_leading().await];
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let acquires = (0..6).map(|_| tokio::spawn(broker.acquire("k", secs(5), secs(5)))).collect::<Vec<_>>();
    for peer in &mut peers {
        for _ in 0..3 {
            let owner = peer.next_acquire().await;
            peer.busy(owner, "k").await;
        }
    }
    for acquire in acquires {
        assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
    }
}

#[tokio::test]
async fn the_leader_is_asked_by_the_name_that_it_gave_itself() {
    let (one, two) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&one.address, &two.address]).unwrap();
    // Names inside the cluster, which nobody outside could dial.
    let mut follower = one.accept(&Intro::follower("node-1:5225", "node-2:5225")).await;
    let mut leader = two.accept(&Intro::follower("node-2:5225", "node-2:5225")).await;
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let statuses = broker.connections();
    assert_eq!((statuses[0].leads, statuses[1].leads), (Some(false), Some(true)));
    for _ in 0..4 {
        let acquire = tokio::spawn(broker.acquire("k", secs(5), secs(5)));
        let owner = leader.next_acquire().await;
        leader.busy(owner, "k").await;
        soon("an outcome", acquire).await.unwrap().unwrap_err();
    }
    // Leadership moves, and the requests with it.
    follower.send(ServerFrame::Leader { address: "node-1:5225" }).await;
    leader.send(ServerFrame::Leader { address: "node-1:5225" }).await;
    wait_until("it moved", || broker.connections()[1].leads == Some(false)).await;
    let acquire = tokio::spawn(broker.acquire("k", secs(5), secs(5)));
    let owner = follower.next_acquire().await;
    follower.busy(owner, "k").await;
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

#[tokio::test]
async fn while_every_session_names_another_leader_an_acquire_waits_unsent() {
    let (one, two) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&one.address, &two.address]).unwrap();
    // They point at each other; following would never end.
    let mut first = one.accept(&Intro::follower("node-1:1", "node-2:1")).await;
    let mut second = two.accept(&Intro::follower("node-2:1", "node-1:1")).await;
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let start = Instant::now();
    let error = soon("an outcome", broker.acquire("k", secs(1), secs(5))).await.unwrap_err();
    assert!(error.is_not_connected() && start.elapsed() >= secs(1), "{error}");
    let told = format!("{error:?}");
    assert!(told.contains("node-"), "the cause is told: {told}");
    first.quiet_for(millis(50)).await;
    second.quiet_for(millis(50)).await;
    // One that does lead after all gets what waits, and the wait that is left.
    let acquire = tokio::spawn(broker.acquire("k", secs(30), secs(5)));
    tokio::time::sleep(millis(1100)).await;
    second.send(ServerFrame::Leader { address: "node-2:1" }).await;
    match second.next().await {
        Asked::Acquire { wait, owner, .. } => {
            assert!((20..=29).contains(&wait), "{wait}");
            second.busy(owner, "k").await;
        }
        other => panic!("{other:?}"),
    }
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
}

#[tokio::test]
async fn busy_and_moved_go_back_to_the_caller_and_the_hint_is_remembered() {
    let (one, two) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&two.address, &one.address]).unwrap();
    // Base servers, which introduce nobody: hints are matched literally.
    let mut second = two.accept(&Intro::base()).await;
    let mut first = one.accept(&Intro::base()).await;
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let acquires = [(); 2].map(|()| tokio::spawn(broker.acquire("k", secs(5), secs(5))));
    let owner = first.next_acquire().await;
    first.busy(owner, "k").await;
    first.send(ServerFrame::Moved { address: &two.address }).await;
    let owner = second.next_acquire().await;
    second.busy(owner, "k").await;
    for acquire in acquires {
        assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_busy());
    }
    wait_until("the hint is taken", || broker.connections()[1].leads == Some(false)).await;
    for _ in 0..4 {
        let acquire = tokio::spawn(broker.acquire("k", secs(5), secs(5)));
        let owner = second.next_acquire().await;
        second.busy(owner, "k").await;
        soon("an outcome", acquire).await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn hints_to_unknown_addresses_are_never_dialled() {
    let (server, stranger) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let mut peer = server.accept(&Intro::follower("me:1", &stranger.address)).await;
    peer.send(ServerFrame::Moved { address: &stranger.address }).await;
    wait_until("it is open", || is_open(&broker, 0)).await;
    assert!(tokio::time::timeout(millis(500), stranger.accept_raw()).await.is_err());
}

#[tokio::test]
async fn a_release_turned_away_goes_to_the_leader() {
    let (one, two) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&one.address, &two.address]).unwrap();
    let mut old = one.accept(&Intro::follower("node-1:1", "node-1:1")).await;
    let mut new = two.accept(&Intro::follower("node-2:1", "node-1:1")).await;
    wait_until("both are open", || is_open(&broker, 0) && is_open(&broker, 1)).await;
    let release = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.release("k", 7).await })
    };
    assert_eq!(old.next_release().await, 7);
    new.send(ServerFrame::Leader { address: "node-2:1" }).await;
    old.send(ServerFrame::Moved { address: "node-2:1" }).await;
    assert_eq!(new.next_release().await, 7);
    new.released(7, "k").await;
    soon("the release", release).await.unwrap().unwrap();
}
