//! Acquires that were sent and not answered: never sent again, told as such,
//! and cleared up on demand.

use std::time::Instant;

use ticketing::{ErrorKind, TicketBroker, TicketError, Verdict};
use ticketing_protocol::ServerFrame;

use crate::common::scripted::{Asked, Intro, Peer, Scripted};
use crate::common::{PATIENCE, millis, secs, soon, wait_until};

const KEY: &str = "seat:12";

/// A broker with two connections to one server that leads.
async fn pair() -> (Scripted, TicketBroker, Peer, Peer) {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let (one, two) = (server.accept_leading().await, server.accept_leading().await);
    wait_until("both are open", || broker.connections().iter().all(|connection| connection.open)).await;
    (server, broker, one, two)
}

/// Which of the two got an acquire: (its peer, the other, the owner).
async fn acquired_on(mut one: Peer, mut two: Peer) -> (Peer, Peer, u64) {
    enum Got {
        One(u64),
        Two(u64),
    }
    let got = tokio::select! {
        owner = one.next_acquire() => Got::One(owner),
        owner = two.next_acquire() => Got::Two(owner),
    };
    match got {
        Got::One(owner) => (one, two, owner),
        Got::Two(owner) => (two, one, owner),
    }
}

/// An acquire whose connection ends under it, and the peer that is left.
async fn lost() -> (Scripted, TicketBroker, Peer, u64, TicketError) {
    let (server, broker, one, two) = pair().await;
    let acquire = tokio::spawn(broker.acquire(KEY, secs(30), secs(30)));
    let (asked, other, owner) = acquired_on(one, two).await;
    drop(asked);
    let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.owner(), error.key()),
        (ErrorKind::Indeterminate, Some(owner), Some(KEY))
    );
    assert!(std::error::Error::source(&error).is_some(), "why is told");
    (server, broker, other, owner, error)
}

#[tokio::test]
async fn a_connection_that_ends_loses_what_was_sent_and_nothing_is_sent_again() {
    let (server, _broker, mut other, _, _error) = lost().await;
    let mut again = server.accept_leading().await;
    tokio::join!(other.quiet_for(millis(300)), again.quiet_for(millis(300)));
}

#[tokio::test]
async fn a_fatal_frame_loses_what_was_sent() {
    for frame in [&b"Eoverloaded\n"[..], b"Zz\n", b"B00000000unknown\n", &[b'E'; 200]] {
        let (_server, broker, one, two) = pair().await;
        let acquire = tokio::spawn(broker.acquire(KEY, secs(30), secs(30)));
        let (mut asked, _other, _) = acquired_on(one, two).await;
        asked.send_raw(frame).await;
        let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
        assert!(error.is_indeterminate(), "{error:?}");
        asked.ended().await;
    }
}

#[tokio::test]
async fn half_a_grant_is_no_grant() {
    let (_server, broker, one, two) = pair().await;
    let acquire = tokio::spawn(broker.acquire(KEY, secs(30), secs(30)));
    let (mut asked, _other, owner) = acquired_on(one, two).await;
    let mut frame = Vec::new();
    let key = ticketing_protocol::Key::new(KEY).unwrap();
    ServerFrame::GrantedUntil { token: 1, owner, ends_ms: 30_000, key }.encode(&mut frame);
    frame.pop();
    asked.send_raw(&frame).await;
    drop(asked);
    assert!(soon("an outcome", acquire).await.unwrap().unwrap_err().is_indeterminate());
}

#[tokio::test]
async fn no_answer_in_time_is_indeterminate_and_the_session_lives_on() {
    let (_server, broker, one, two) = pair().await;
    let start = Instant::now();
    let acquire = tokio::spawn(broker.try_acquire(KEY, secs(30)));
    let (mut asked, mut other, owner) = acquired_on(one, two).await;
    let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
    assert!(error.is_indeterminate() && start.elapsed() >= secs(5), "{error:?}");
    // Asked to clear it up, the client must not ask on the connection that
    // still owes the answer.
    let verdict = tokio::spawn(async move { (error.verify(secs(10)).await, error) });
    assert_eq!(other.next().await, Asked::Verify { owner, key: KEY.to_owned() });
    other.grant(owner, 7, 0, KEY).await;
    let (verdict, error) = soon("a verdict", verdict).await.unwrap();
    let Verdict::Held(ticket) = verdict.unwrap() else { panic!("it is held") };
    assert_eq!((ticket.token(), ticket.owner()), (7, owner));
    // The grant itself comes late. The ticket is in use: nothing is released.
    asked.grant(owner, 7, 30_000, KEY).await;
    tokio::join!(asked.quiet_for(millis(200)), other.quiet_for(millis(200)));
    // And there is one ticket only.
    assert_eq!(error.verify(secs(10)).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let _ = ticket.detach();
}

#[tokio::test]
async fn a_late_grant_that_nobody_asked_about_is_released_once() {
    let (_server, broker, one, two) = pair().await;
    let acquire = tokio::spawn(broker.try_acquire(KEY, secs(30)));
    let (mut asked, mut other, owner) = acquired_on(one, two).await;
    let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
    assert!(error.is_indeterminate());
    asked.grant(owner, 7, 30_000, KEY).await;
    let released = async {
        tokio::select! { token = asked.next_release() => token, token = other.next_release() => token }
    };
    assert_eq!(soon("the release", released).await, 7);
}

#[tokio::test]
async fn a_lost_acquire_is_cleared_up_either_way() {
    for held in [true, false] {
        let (_server, _broker, mut other, owner, error) = lost().await;
        let verdict = tokio::spawn(async move { error.verify(secs(10)).await });
        assert_eq!(other.next().await, Asked::Verify { owner, key: KEY.to_owned() });
        if held {
            other.grant(owner, 7, 0, KEY).await;
        } else {
            other.busy(owner, KEY).await;
        }
        match soon("a verdict", verdict).await.unwrap().unwrap() {
            Verdict::Held(ticket) => {
                assert!(held && ticket.remaining() <= millis(29_850));
                let release = tokio::spawn(ticket.release());
                assert_eq!(other.next_release().await, 7);
                other.released(7, KEY).await;
                soon("the release", release).await.unwrap().unwrap();
            }
            Verdict::NotAcquired => assert!(!held),
        }
    }
}

#[tokio::test]
async fn while_nobody_can_say_it_stays_indeterminate_and_can_be_asked_again() {
    let (server, _broker, mut other, owner, error) = lost().await;
    let asking = tokio::spawn(async move { (error.verify(millis(300)).await, error) });
    assert_eq!(other.next().await, Asked::Verify { owner, key: KEY.to_owned() });
    let (verdict, error) = soon("a verdict", asking).await.unwrap();
    let still = verdict.unwrap_err();
    assert_eq!((still.kind(), still.owner()), (ErrorKind::Indeterminate, Some(owner)));
    drop(error);
    // The connection that could not say ends; the next one can.
    drop(other);
    let verdict = tokio::spawn(async move { still.verify(secs(20)).await });
    let mut again = server.accept_leading().await;
    assert_eq!(again.next().await, Asked::Verify { owner, key: KEY.to_owned() });
    again.busy(owner, KEY).await;
    assert!(matches!(soon("a verdict", verdict).await.unwrap(), Ok(Verdict::NotAcquired)));
}

#[tokio::test]
async fn only_a_node_that_leads_is_asked() {
    let (one, two) = (Scripted::bind().await, Scripted::bind().await);
    let broker = TicketBroker::connect([&one.address, &two.address]).unwrap();
    let mut leader = one.accept(&Intro::follower("a:1", "a:1")).await;
    let mut follower = two.accept(&Intro::follower("b:1", "a:1")).await;
    wait_until("both are open", || broker.connections().iter().all(|connection| connection.open)).await;
    let acquire = tokio::spawn(broker.acquire(KEY, secs(30), secs(30)));
    let owner = leader.next_acquire().await;
    drop(leader);
    let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
    // "Not known" is not "I".
    follower.send(ServerFrame::Leader { address: "" }).await;
    let verdict = tokio::spawn(async move { error.verify(secs(20)).await });
    follower.quiet_for(millis(300)).await;
    follower.send(ServerFrame::Leader { address: "b:1" }).await;
    assert_eq!(follower.next().await, Asked::Verify { owner, key: KEY.to_owned() });
    follower.busy(owner, KEY).await;
    assert!(matches!(soon("a verdict", verdict).await.unwrap(), Ok(Verdict::NotAcquired)));
}

#[tokio::test]
async fn what_cannot_be_verified_says_why() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept(&Intro { leader: Some(server.address.clone()), ..Intro::base() }).await;
    broker.wait_ready(PATIENCE).await.unwrap();
    let acquire = tokio::spawn(broker.acquire(KEY, secs(30), secs(30)));
    peer.next_acquire().await;
    drop(peer);
    let error = soon("an outcome", acquire).await.unwrap().unwrap_err();
    let _again = server.accept(&Intro { leader: Some(server.address.clone()), ..Intro::base() }).await;
    assert_eq!(error.verify(PATIENCE).await.unwrap_err().kind(), ErrorKind::Unsupported);
    broker.close().await;
    assert_eq!(error.verify(PATIENCE).await.unwrap_err().kind(), ErrorKind::Closed);
    drop(broker);
    assert_eq!(error.verify(PATIENCE).await.unwrap_err().kind(), ErrorKind::Closed);
    let other =
        TicketBroker::connect(["localhost:1"]).unwrap().acquire("", secs(1), secs(1)).await.unwrap_err();
    assert_eq!(other.verify(PATIENCE).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
