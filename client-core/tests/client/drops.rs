//! An acquire dropped at every point: nothing is left behind, and nothing else
//! is disturbed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use ticketing::{Acquire, TicketBroker};

use crate::common::lock_server::{Behaviour, LockServer};
use crate::common::scripted::{Asked, Scripted};
use crate::common::{millis, poll_once, secs, soon, wait_until};

/// Counts how often the future asked to be polled again.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls an acquire, each time that it asks for it, up to `polls` times.
/// Whether it was ready by then; the ticket, if there is one, is dropped.
async fn poll_times(acquire: &mut Acquire, polls: usize) -> bool {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    for poll in 0..polls {
        if Pin::new(&mut *acquire).poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        if poll + 1 < polls {
            let wakes = Arc::clone(&wakes);
            wait_until("it asks to be polled", move || wakes.0.load(Ordering::SeqCst) > poll).await;
        }
    }
    false
}

async fn settled(server: &LockServer) {
    wait_until("nothing is left behind", || server.is_clean()).await;
    let counts = server.counts();
    assert_eq!(counts.granted, counts.released, "each grant is given back once: {counts:?}");
    assert_eq!(counts.not_held, 0, "and only once: {counts:?}");
}

#[tokio::test]
async fn dropped_at_every_poll() {
    for extension in [true, false] {
        let server = LockServer::with(Behaviour { extension, ..Behaviour::default() });
        for connected in [true, false] {
            for polls in 0.. {
                let broker = TicketBroker::connect([&server.address]).unwrap();
                if connected {
                    broker.wait_ready(secs(20)).await.unwrap();
                }
                let mut acquire = broker.acquire("k", secs(60), secs(200));
                let ready = poll_times(&mut acquire, polls).await;
                drop(acquire);
                // What was sent is on its way, what was not must never be.
                settled(&server).await;
                broker.close().await;
                settled(&server).await;
                if ready {
                    assert!(polls >= 1);
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn dropped_while_it_waits_in_the_queue() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let held = broker.acquire("k", secs(60), secs(200)).await.unwrap();
    let waiting = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    wait_until("it waits", || server.counts().waiting == 1).await;
    let beside = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    wait_until("both wait", || server.counts().waiting == 2).await;
    waiting.abort();
    wait_until("the dropped one leaves the queue", || server.counts().waiting == 1).await;
    held.release().await.unwrap();
    soon("the other", beside).await.unwrap().unwrap().release().await.unwrap();
    settled(&server).await;
    assert_eq!(server.counts().granted, 2, "the dropped one was never granted");
}

#[tokio::test]
async fn dropped_while_it_waits_without_the_extension() {
    let server = LockServer::with(Behaviour { extension: false, ..Behaviour::default() });
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let held = broker.acquire("k", secs(60), secs(200)).await.unwrap();
    let waiting = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    wait_until("it waits", || server.counts().waiting == 1).await;
    waiting.abort();
    let _ = waiting.await;
    held.release().await.unwrap();
    // It is granted, to nobody, and given back.
    wait_until("its grant is given back", || server.counts().released == 2).await;
    settled(&server).await;
}

#[tokio::test]
async fn dropped_before_it_was_sent_nothing_is() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    // The handshake hangs: there is no session.
    let (_one, _two) = (server.accept_raw().await, server.accept_raw().await);
    let mut acquire = broker.acquire("k", secs(60), secs(200));
    assert!(poll_once(&mut acquire).is_pending());
    drop(acquire);
    drop((_one, _two));
    let (mut one, mut two) = (server.accept_leading().await, server.accept_leading().await);
    tokio::join!(one.quiet_for(millis(200)), two.quiet_for(millis(200)));
}

#[tokio::test]
async fn pushed_to_the_session_and_dropped_before_its_task_ran_nothing_is_sent() {
    // One thread: the task of the socket cannot run between the two.
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let (mut one, mut two) = (server.accept_leading().await, server.accept_leading().await);
    broker.wait_ready(secs(20)).await.unwrap();
    for _ in 0..10 {
        let mut acquire = broker.acquire("k", secs(60), secs(200));
        assert!(poll_once(&mut acquire).is_pending());
        drop(acquire);
    }
    tokio::join!(one.quiet_for(millis(200)), two.quiet_for(millis(200)));
}

#[tokio::test]
async fn a_grant_that_was_delivered_and_never_read_is_given_back() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let mut acquire = broker.acquire("k", secs(60), secs(200));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(Pin::new(&mut acquire).poll(&mut Context::from_waker(&waker)).is_pending());
    let owner = peer.next_acquire().await;
    peer.grant(owner, 7, 200_000, "k").await;
    wait_until("the grant is delivered", || wakes.0.load(Ordering::SeqCst) > 0).await;
    drop(acquire);
    assert_eq!(peer.next_release().await, 7);
    peer.released(7, "k").await;
    peer.quiet_for(millis(200)).await;
}

#[tokio::test]
async fn a_cancel_and_a_grant_that_cross_are_settled_by_one_release() {
    let server = Scripted::bind().await;
    let broker = TicketBroker::connect([&server.address, "localhost:1"]).unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    let beside = tokio::spawn(broker.acquire("other", secs(60), secs(200)));
    let (first, second) = (peer.next().await, peer.next().await);
    let owner_of = |name: &str| {
        [&first, &second].into_iter().find_map(|asked| match asked {
            Asked::Acquire { owner, key, .. } if key == name => Some(*owner),
            _ => None,
        })
    };
    let (owner, other) = (owner_of("k").unwrap(), owner_of("other").unwrap());
    acquire.abort();
    assert_eq!(peer.next().await, Asked::Cancel { owner, key: "k".to_owned() });
    // Decided before the cancel came.
    peer.grant(owner, 7, 200_000, "k").await;
    assert_eq!(peer.next_release().await, 7);
    peer.released(7, "k").await;
    peer.grant(other, 8, 200_000, "other").await;
    let ticket = soon("the one beside", beside).await.unwrap().unwrap();
    assert_eq!(ticket.token(), 8);
    let _ = ticket.detach();
    peer.quiet_for(millis(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_and_grants_that_race_leave_no_orphan() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    broker.wait_ready(secs(20)).await.unwrap();
    for round in 0..300_u64 {
        let tasks = (0..4).map(|key| {
            let acquire = broker.acquire(&format!("k{key}"), secs(60), secs(200));
            tokio::spawn(async move { drop(acquire.await) })
        });
        let tasks = tasks.collect::<Vec<_>>();
        // From "not yet sent" to "long done".
        tokio::time::sleep(std::time::Duration::from_micros(round * 7 % 1500)).await;
        for task in tasks {
            task.abort();
        }
    }
    settled(&server).await;
}

/// More than are given back at a time.
const MANY: usize = 3000;

#[tokio::test]
async fn a_mass_cancel_leaves_no_lock_behind() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    broker.wait_ready(secs(20)).await.unwrap();
    let mut acquires = (0..MANY)
        .map(|number| broker.acquire(&format!("k{number}"), secs(60), secs(200)))
        .collect::<Vec<_>>();
    assert!(acquires.iter_mut().all(|acquire| poll_once(acquire).is_pending()));
    // Their grants are there, and nobody has read them.
    wait_until("all are granted", || server.counts().granted == MANY).await;
    drop(acquires);
    settled(&server).await;
}

/// Each counts as pending until its lock is given back: new ones do not pile up on top.
#[tokio::test]
async fn late_grants_stand_in_the_places_of_their_acquires() {
    let server = Scripted::bind().await;
    let broker =
        TicketBroker::builder().addresses([&server.address, "localhost:1"]).max_pending(1).build().unwrap();
    let mut peer = server.accept_leading().await;
    broker.wait_ready(secs(20)).await.unwrap();
    let acquire = tokio::spawn(broker.acquire("k", secs(60), secs(200)));
    let owner = peer.next_acquire().await;
    acquire.abort();
    assert_eq!(peer.next().await, Asked::Cancel { owner, key: "k".to_owned() });
    peer.grant(owner, 7, 200_000, "k").await;
    assert_eq!(peer.next_release().await, 7);
    let error = soon("a refusal", broker.acquire("other", secs(5), secs(5))).await.unwrap_err();
    assert!(error.is_client_capacity(), "{error:?}");
    peer.released(7, "k").await;
    let acquire = tokio::spawn(async move {
        loop {
            match broker.acquire("other", secs(60), secs(200)).await {
                Err(error) if error.is_client_capacity() => tokio::task::yield_now().await,
                outcome => return outcome.map(|ticket| ticket.detach().token),
            }
        }
    });
    let owner = peer.next_acquire().await;
    peer.grant(owner, 8, 200_000, "other").await;
    assert_eq!(soon("the grant", acquire).await.unwrap().unwrap(), 8);
}

#[tokio::test]
async fn tickets_that_are_dropped_together_are_all_given_back() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let acquires = (0..MANY).map(|number| broker.acquire(&format!("k{number}"), secs(60), secs(200)));
    let acquires = acquires.map(tokio::spawn).collect::<Vec<_>>();
    let mut tickets = Vec::new();
    for acquire in acquires {
        tickets.push(soon("a grant", acquire).await.unwrap().unwrap());
    }
    drop(tickets);
    settled(&server).await;
}

#[tokio::test]
async fn an_acquire_that_is_awaited_again_says_that_it_is_over() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let mut granted = broker.acquire("k", secs(60), secs(200));
    let ticket = soon("the lock", &mut granted).await.unwrap();
    let mut refused = broker.acquire("", secs(1), secs(1));
    assert!(soon("the refusal", &mut refused).await.is_err());
    for acquire in [&mut granted, &mut refused] {
        for _ in 0..2 {
            let error = soon("an answer", &mut *acquire).await.unwrap_err();
            assert!(error.is_invalid_input(), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("outcome before") && !text.contains(r#""""#), "{text}");
            assert_ne!(error.key(), Some(""));
        }
    }
    // Neither does that harm what it told.
    drop(granted);
    ticket.release().await.unwrap();
}
