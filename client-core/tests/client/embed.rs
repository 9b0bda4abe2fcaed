//! The broker with a thread of its own: every submission is told once.

use std::sync::mpsc::{self, Receiver};

use ticketing::embed::{Embedded, Submission};
use ticketing::{ErrorKind, Ticket, TicketBroker, TicketError};

use crate::common::lock_server::LockServer;
use crate::common::{PATIENCE, secs};

type Outcome = Option<Result<Ticket, TicketError>>;

fn start(server: &LockServer) -> Embedded {
    Embedded::start(TicketBroker::builder().address(&server.address)).unwrap()
}

fn acquire(embedded: &Embedded, key: &str) -> (Submission, Receiver<Outcome>) {
    let (told, outcome) = mpsc::channel();
    let acquire = embedded.broker().acquire(key, secs(60), secs(60));
    (embedded.submit(acquire, move |outcome| told.send(outcome).unwrap()), outcome)
}

/// What is told, and that nothing more is.
fn only(outcome: &Receiver<Outcome>) -> Outcome {
    let first = outcome.recv_timeout(PATIENCE).unwrap();
    assert_eq!(outcome.recv_timeout(PATIENCE).unwrap_err(), mpsc::RecvTimeoutError::Disconnected);
    first
}

#[test]
fn an_outcome_is_told_once() {
    let server = LockServer::start();
    let embedded = start(&server);
    let (submission, outcome) = acquire(&embedded, "k");
    let ticket = only(&outcome).unwrap().unwrap();
    submission.cancel();
    assert_eq!(ticket.key(), "k");
    let (_submission, outcome) = acquire(&embedded, "");
    assert_eq!(only(&outcome).unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    embedded.close();
}

#[test]
fn a_cancelled_submission_is_told_once_and_leaves_the_queue() {
    let server = LockServer::start();
    let embedded = start(&server);
    let held = only(&acquire(&embedded, "k").1).unwrap().unwrap();
    for _ in 0..200 {
        let (submission, outcome) = acquire(&embedded, "k");
        submission.cancel();
        submission.cancel();
        assert!(only(&outcome).is_none());
    }
    drop(held);
    assert!(only(&acquire(&embedded, "k").1).unwrap().is_ok());
    embedded.close();
}

#[test]
fn what_was_submitted_for_later_begins_with_a_flush() {
    let server = LockServer::start();
    let embedded = start(&server);
    let later = |key: &str| {
        let (told, outcome) = mpsc::channel();
        let acquire = embedded.broker().acquire(key, secs(60), secs(60));
        (embedded.submit_later(acquire, move |outcome| told.send(outcome).unwrap()), outcome)
    };
    let (_first, first) = later("a");
    let (second, cancelled) = later("b");
    let (_third, third) = later("c");
    second.cancel();
    assert!(first.recv_timeout(secs(1) / 5).is_err(), "nothing has begun");
    embedded.flush();
    assert!(only(&first).unwrap().is_ok());
    assert!(only(&cancelled).is_none());
    // A submission that needs no flush brings the others along.
    let (_fourth, fourth) = later("d");
    assert!(only(&acquire(&embedded, "e").1).unwrap().is_ok());
    assert!(only(&fourth).unwrap().is_ok() && only(&third).unwrap().is_ok());
    let (_fifth, never) = later("f");
    embedded.close();
    assert!(only(&never).unwrap().unwrap_err().is_closed());
    assert!(only(&later("g").1).is_none());
}

#[test]
fn a_close_tells_every_submission_once() {
    let server = LockServer::start();
    let embedded = start(&server);
    let held = only(&acquire(&embedded, "k").1).unwrap().unwrap();
    let waiting: Vec<_> = (0..100).map(|_| acquire(&embedded, "k")).collect();
    embedded.close();
    for (_submission, outcome) in &waiting {
        let ended = only(outcome).unwrap().unwrap_err();
        assert!(ended.is_closed() || ended.is_indeterminate(), "{ended}");
    }
    let (_late, outcome) = acquire(&embedded, "k");
    assert!(only(&outcome).is_none_or(|ended| ended.unwrap_err().is_closed()));
    drop(held);
}

#[test]
fn a_callback_may_close_the_broker_and_submit_again() {
    let server = LockServer::start();
    let embedded = start(&server);
    let (told, outcome) = mpsc::channel();
    let again = embedded.clone();
    embedded.submit(embedded.broker().acquire("k", secs(60), secs(60)), move |first| {
        assert!(again.is_own_thread());
        let broker = again.broker().clone();
        let ready = async move { broker.wait_ready(secs(60)).await };
        again.submit(ready, move |ready| told.send(ready).unwrap());
        drop(first);
        again.close();
    });
    // It ends, whichever comes first.
    let _ = outcome.recv_timeout(PATIENCE).unwrap();
    assert!(!embedded.is_own_thread() && !embedded.is_inherited());
    embedded.close();
}
