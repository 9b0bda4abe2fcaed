//! The blocking client: the same outcomes for threads.

use std::time::{Duration, Instant};

use ticketing::ErrorKind;
use ticketing::blocking::TicketBroker;

use crate::common::lock_server::LockServer;
use crate::common::{millis, secs};

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < crate::common::PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_take_turns() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    broker.wait_ready(secs(20)).unwrap();
    let inside = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let ticket = broker.acquire("k", secs(60), secs(60)).unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    ticket.release().unwrap();
                }
            });
        }
    });
    assert_eq!(server.counts().released, 80);
    broker.close();
    broker.close();
    assert_eq!(broker.acquire("k", secs(1), secs(1)).unwrap_err().kind(), ErrorKind::Closed);
    eventually("the connections end", || server.counts().connections == 0);
}

#[test]
fn outcomes_are_those_of_the_async_client() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let ticket = broker.try_acquire("k", secs(60)).unwrap();
    assert!(broker.try_acquire("k", secs(60)).unwrap_err().is_timeout());
    let grant = ticket.detach();
    broker.release("k", grant.token).unwrap();
    assert!(broker.release("k", grant.token).unwrap_err().is_not_held());
    assert_eq!(broker.acquire("", secs(1), secs(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let none: [&str; 0] = [];
    assert_eq!(TicketBroker::connect(none).unwrap_err().kind(), ErrorKind::InvalidInput);
    let nobody = TicketBroker::connect(["127.0.0.1:1"]).unwrap();
    assert!(nobody.acquire("k", millis(10), secs(1)).unwrap_err().is_not_connected());
}

#[test]
fn a_dropped_ticket_and_a_dropped_broker_leave_nothing() {
    let server = LockServer::start();
    let broker = TicketBroker::connect([&server.address]).unwrap();
    let ticket = broker.acquire("k", secs(60), secs(200)).unwrap();
    drop(broker);
    drop(ticket);
    eventually("all is given back", || server.is_clean() && server.counts().connections == 0);
}

#[test]
fn inside_an_async_context_it_blocks_and_nothing_worse() {
    let server = LockServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = TicketBroker::connect([&server.address]).unwrap();
        let ticket = broker.acquire("k", secs(60), secs(200)).unwrap();
        drop(ticket);
        let ticket = broker.acquire("k", secs(60), secs(200)).unwrap();
        ticket.release().unwrap();
        broker.close();
        drop(broker);
    });
    eventually("the connections end", || server.counts().connections == 0);
}

#[test]
fn a_broker_without_a_server_ends_at_once() {
    let broker = TicketBroker::connect(["127.0.0.1:1"]).unwrap();
    let start = Instant::now();
    broker.close();
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
}
