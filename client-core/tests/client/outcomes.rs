//! Acquire and release against a server that really keeps locks: every outcome
//! that needs no trouble on the way.

use std::time::Instant;

use crate::common::lock_server::{Behaviour, DOMAIN, LockServer};
use crate::common::{millis, poll_once, secs, soon, wait_until};
use ticketing::{Acquire, AcquireOptions, ErrorKind, Place, Ticket, TicketBroker, TicketError, TlsOptions};

fn broker(server: &LockServer) -> TicketBroker {
    TicketBroker::connect([&server.address]).unwrap()
}

async fn kind(acquire: impl Future<Output = Result<Ticket, TicketError>>) -> ErrorKind {
    soon("an outcome", acquire).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_ticket_tells_what_it_is_and_is_given_back() {
    let server = LockServer::start();
    let broker = broker(&server);
    let ticket = broker.acquire("seat:12", secs(5), secs(30)).await.unwrap();
    assert_eq!((ticket.key(), ticket.token(), ticket.domain()), ("seat:12", 1, Some(DOMAIN)));
    let left = ticket.remaining();
    assert!(left <= millis(29_850) && left > secs(10), "{left:?}");
    ticket.release().await.unwrap();
    assert!(server.is_clean());
    let again = broker.try_acquire("seat:12", secs(1)).await.unwrap();
    assert_eq!(again.token(), 2);
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_held_lock_times_out_at_once_or_after_its_wait() {
    let server = LockServer::start();
    let broker = broker(&server);
    let held = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    assert_eq!(kind(broker.try_acquire("k", secs(1))).await, ErrorKind::Timeout);
    let start = Instant::now();
    let error = broker.acquire("k", millis(300), secs(1)).await.unwrap_err();
    assert!(error.is_timeout() && start.elapsed() >= secs(1), "fractions are rounded up");
    assert_eq!(error.key(), Some("k"));
    held.release().await.unwrap();
}

#[tokio::test]
async fn waiters_are_served_in_order_and_know_their_place() {
    let server = LockServer::start();
    let broker = broker(&server);
    let first = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    let second = broker.acquire("k", secs(60), secs(60));
    let third = broker.acquire("k", secs(60), secs(60));
    let (second_place, third_place) = (second.placement(), third.placement());
    assert_eq!(second_place.place().await.unwrap().place, 0, "not begun");
    let second = tokio::spawn(second);
    wait_until("the second waits", || server.counts().waiting == 1).await;
    let third = tokio::spawn(third);
    wait_until("the third waits", || server.counts().waiting == 2).await;
    assert_eq!(second_place.place().await.unwrap(), Place { place: 1, waiters: 2 });
    assert_eq!(third_place.clone().place().await.unwrap(), Place { place: 2, waiters: 2 });
    first.release().await.unwrap();
    let second = soon("the second", second).await.unwrap().unwrap();
    assert_eq!(third_place.place().await.unwrap(), Place { place: 1, waiters: 1 });
    second.release().await.unwrap();
    let third = soon("the third", third).await.unwrap().unwrap();
    assert_eq!(third.token(), 3);
    assert_eq!(third_place.place().await.unwrap().place, 0, "over");
    third.release().await.unwrap();
}

#[tokio::test]
async fn a_dropped_ticket_is_given_back_and_a_detached_one_is_not() {
    let server = LockServer::start();
    let broker = broker(&server);
    drop(broker.acquire("k", secs(5), secs(60)).await.unwrap());
    wait_until("the drop releases", || server.is_clean()).await;
    let grant = broker.acquire("k", secs(5), secs(60)).await.unwrap().detach();
    assert_eq!((grant.key.as_str(), grant.token), ("k", 2));
    assert_eq!(kind(broker.try_acquire("k", secs(1))).await, ErrorKind::Timeout);
    broker.release(&grant.key, grant.token).await.unwrap();
    assert!(server.is_clean());
    assert_eq!(server.counts().released, 2);
}

#[tokio::test]
async fn many_tickets_dropped_at_once_are_given_back_as_far_as_the_queue_goes() {
    let server = LockServer::start();
    let broker = broker(&server);
    let mut tickets = Vec::new();
    for key in 0..600 {
        tickets.push(broker.acquire(&key.to_string(), secs(60), secs(200)).await.unwrap());
    }
    // On one thread nothing can leave the queue meanwhile.
    drop(tickets);
    wait_until("512 are given back", || server.counts().released == 512).await;
    tokio::time::sleep(millis(100)).await;
    assert_eq!(server.counts().held, 600 - 512, "the rest is left to its leases");
}

#[tokio::test]
async fn the_last_ticket_is_given_back_although_its_broker_has_gone() {
    let server = LockServer::start();
    let ticket = broker(&server).acquire("k", secs(5), secs(60)).await.unwrap();
    drop(ticket);
    wait_until("the drop releases", || server.is_clean()).await;
    wait_until("the connections end", || server.counts().connections == 0).await;
}

#[tokio::test]
async fn a_release_that_comes_too_late_says_so() {
    let server = LockServer::start();
    let broker = broker(&server);
    let ticket = broker.acquire("k", secs(5), secs(1)).await.unwrap();
    wait_until("the lease ends", || server.is_clean()).await;
    assert_eq!(ticket.remaining(), secs(0));
    let error = ticket.release().await.unwrap_err();
    assert_eq!((error.kind(), error.key(), error.token()), (ErrorKind::NotHeld, Some("k"), Some(1)));
    let error = broker.release("k", 99).await.unwrap_err();
    assert!(error.is_not_held() && !error.may_have_released());
}

#[tokio::test]
async fn a_release_dropped_half_way_goes_on() {
    let server = LockServer::start();
    let broker = broker(&server);
    for polls in 0..3 {
        let ticket = broker.acquire("k", secs(5), secs(60)).await.unwrap();
        let mut release = Box::pin(ticket.release());
        for _ in 0..polls {
            let _ = poll_once(&mut release);
        }
        drop(release);
        wait_until("the release goes on", || server.is_clean()).await;
    }
    assert_eq!(server.counts().not_held, 0, "one release each");
}

#[tokio::test]
async fn too_little_of_a_lease_is_given_back() {
    let server = LockServer::start();
    let broker = broker(&server);
    let options = AcquireOptions {
        lease: secs(2),
        min_remaining: Some(millis(1990) - std::time::Duration::from_nanos(1)),
        ..Default::default()
    };
    let error = broker.acquire_with("k", options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientLease);
    wait_until("it is given back", || server.is_clean()).await;
    let options = AcquireOptions { min_remaining: Some(secs(1)), ..options };
    broker.acquire_with("k", options).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_base_server_serves_without_the_extension() {
    let server = LockServer::with(Behaviour { extension: false, ..Behaviour::default() });
    let broker = broker(&server);
    broker.wait_ready(secs(20)).await.unwrap();
    assert!(broker.connections().iter().any(|connection| connection.open && !connection.extension));
    let held = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    let waiting: Acquire = broker.acquire("k", secs(5), secs(60));
    let placement = waiting.placement();
    let waiting = tokio::spawn(waiting);
    wait_until("it waits", || server.counts().waiting == 1).await;
    assert_eq!(placement.place().await.unwrap_err().kind(), ErrorKind::Unsupported);
    held.release().await.unwrap();
    soon("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_waited_beyond_its_lease_on_a_base_server_is_given_back() {
    let server = LockServer::with(Behaviour { extension: false, ..Behaviour::default() });
    let broker = broker(&server);
    let held = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    let waiting = tokio::spawn(broker.acquire("k", secs(20), secs(1)));
    wait_until("it waits", || server.counts().waiting == 1).await;
    tokio::time::sleep(millis(1100)).await;
    held.release().await.unwrap();
    let error = soon("the waiter", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InsufficientLease);
    wait_until("it is given back once", || server.is_clean()).await;
    assert_eq!(server.counts().not_held, 0);
}

#[tokio::test]
async fn with_the_extension_the_same_wait_leaves_the_whole_lease() {
    let server = LockServer::start();
    let broker = broker(&server);
    let held = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    let waiting = tokio::spawn(broker.acquire("k", secs(20), secs(30)));
    wait_until("it waits", || server.counts().waiting == 1).await;
    tokio::time::sleep(millis(1500)).await;
    held.release().await.unwrap();
    let ticket = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(ticket.remaining() > millis(28_600), "{:?}", ticket.remaining());
    ticket.release().await.unwrap();
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_sent() {
    let server = LockServer::start();
    let broker = broker(&server);
    broker.wait_ready(secs(20)).await.unwrap();
    let long = "k".repeat(129);
    for key in ["", "two words", "a\n", "a\r", &long] {
        let error = broker.acquire(key, secs(1), secs(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(broker.release(key, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    for (wait, lease) in [(0, 0), (0, 251), (256, 1)] {
        assert_eq!(kind(broker.acquire("k", secs(wait), secs(lease))).await, ErrorKind::InvalidInput);
    }
    let error = broker.acquire("k", secs(1), millis(250_100)).await.unwrap_err();
    assert!(error.to_string().contains("a lease of 250.1 s; it must be"), "{error}");
    broker.acquire("k", secs(1), millis(500)).await.unwrap().release().await.unwrap();
    assert_eq!(server.counts().acquires, 1);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let none: [&str; 0] = [];
    let bad = [
        TicketBroker::connect(none),
        TicketBroker::connect(["::1"]),
        TicketBroker::connect(["localhost:0"]),
        TicketBroker::builder().address("localhost:1").max_pending(0).build(),
    ];
    for refused in bad {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    for tls in [
        TlsOptions::default().with_ca_file("/there/is/no/such/file.pem"),
        TlsOptions::default().with_ca_pem("not a certificate"),
        TlsOptions::default().with_server_name("not a name"),
    ] {
        let refused = TicketBroker::builder().address("localhost:1").tls(tls).build();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Tls);
    }
    let without_timers = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let without_io = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (runtime, lacks) in [(without_timers, "timers"), (without_io, "IO")] {
        let build = std::thread::spawn(move || {
            let _inside = runtime.enter();
            TicketBroker::connect(["localhost:1"])
        });
        let told = build.join().unwrap_err();
        let told = told
            .downcast::<String>()
            .map_or_else(|told| told.downcast_ref::<&str>().unwrap().to_string(), |told| *told);
        assert!(told.contains(lacks), "{told}");
    }
    let outside = std::thread::spawn(|| TicketBroker::connect(["localhost:1"])).join().unwrap();
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn full_is_told_and_releases_have_room_of_their_own() {
    let server = LockServer::start();
    let broker = TicketBroker::builder().address(&server.address).max_pending(2).build().unwrap();
    let held = broker.acquire("k", secs(5), secs(60)).await.unwrap();
    let waiting = [(); 2].map(|()| tokio::spawn(broker.acquire("k", secs(60), secs(60))));
    wait_until("both wait", || server.counts().waiting == 2).await;
    let error = broker.acquire("other", secs(5), secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientCapacity);
    assert_eq!(server.counts().acquires, 3);
    held.release().await.unwrap();
    for waiter in waiting {
        soon("a waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    broker.acquire("other", secs(5), secs(60)).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_one_key_never_hold_it_together() {
    let server = LockServer::start();
    let broker = broker(&server);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tasks = (0..50).map(|_| {
        let (broker, inside) = (broker.clone(), std::sync::Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..20 {
                let ticket = broker.acquire("k", secs(60), secs(60)).await.unwrap();
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                ticket.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        soon("a task", task).await.unwrap();
    }
    assert_eq!((server.counts().released, server.counts().not_held), (1000, 0));
    assert!(server.is_clean());
}
