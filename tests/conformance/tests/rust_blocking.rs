//! The whole table, run by the blocking Rust client: a thread for each call.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod runner;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;

use runner::{Reply, builder, key, of, play_the_table, seconds, text, wishes};
use serde_json::{Value, json};
use ticketing::TicketError;
use ticketing::blocking::{Ticket, TicketBroker, Verdict};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_blocking_rust_client_keeps_every_promise_of_the_table() {
    play_the_table::<Session>().await;
}

type Shared<T> = Arc<Mutex<HashMap<u64, T>>>;

#[derive(Default)]
struct Session {
    brokers: HashMap<String, TicketBroker>,
    tickets: Shared<Ticket>,
    errors: Shared<(TicketBroker, Arc<TicketError>)>,
}

impl runner::Session for Session {
    const LANGUAGE: &'static str = "rust-blocking";

    fn new() -> Self {
        Self::default()
    }

    fn call(&mut self, call: &Value, reply: Reply) {
        match text(call, "call") {
            "broker" => match builder!(TicketBroker, call).build() {
                Ok(broker) => {
                    self.brokers.insert(text(call, "broker").into(), broker);
                    reply.done();
                }
                Err(error) => reply.error(&error),
            },
            "acquire" | "try_acquire" => self.acquire(call, reply),
            // Who blocks in an acquire can neither cancel it nor ask for its place.
            "cancel" | "place" => reply.inexpressible(),
            "release" => {
                let ticket = self.take_ticket(call);
                thread::spawn(move || reply.outcome("released", ticket.release()));
            }
            "release_token" => {
                let broker = self.broker(call);
                let Some(key) = key(call) else { return reply.inexpressible() };
                let token = text(call, "token").parse().unwrap();
                thread::spawn(move || reply.outcome("released", broker.release(&key, token)));
            }
            "drop" => {
                drop(self.tickets.lock().unwrap().remove(&of(call)));
                reply.done();
            }
            "detach" => {
                let _ = self.take_ticket(call).detach();
                reply.done();
            }
            "remaining" => reply.remaining(self.tickets.lock().unwrap()[&of(call)].remaining()),
            "verify" => {
                let (broker, error) = self.errors.lock().unwrap()[&of(call)].clone();
                let (tickets, timeout) = (Arc::clone(&self.tickets), seconds(call, "timeout").unwrap());
                thread::spawn(move || match broker.verify(&error, timeout) {
                    Ok(Verdict::Held(ticket)) => keep(ticket, &tickets, &reply),
                    Ok(Verdict::NotAcquired) => reply.send("not_acquired", json!({})),
                    Err(error) => reply.error(&error),
                });
            }
            "wait_ready" => {
                let (broker, timeout) = (self.broker(call), seconds(call, "timeout").unwrap());
                thread::spawn(move || reply.outcome("ready", broker.wait_ready(timeout)));
            }
            "connections" => reply.connections(self.broker(call).connections()),
            "close" => {
                let broker = self.broker(call);
                thread::spawn(move || {
                    broker.close();
                    reply.done();
                });
            }
            other => panic!("an unknown call: {other}"),
        }
    }
}

impl Session {
    fn acquire(&self, call: &Value, reply: Reply) {
        let broker = self.broker(call);
        let Some((key, options)) = wishes(call) else { return reply.inexpressible() };
        let is_try = text(call, "call") == "try_acquire";
        let (tickets, errors) = (Arc::clone(&self.tickets), Arc::clone(&self.errors));
        thread::spawn(move || {
            let outcome = if is_try {
                broker.try_acquire(&key, options.lease)
            } else {
                broker.acquire_with(&key, options)
            };
            match outcome {
                Ok(ticket) => keep(ticket, &tickets, &reply),
                Err(error) => {
                    let error = Arc::new(error);
                    errors.lock().unwrap().insert(reply.id, (broker, Arc::clone(&error)));
                    reply.error(&error);
                }
            }
        });
    }

    fn broker(&self, call: &Value) -> TicketBroker {
        self.brokers[text(call, "broker")].clone()
    }

    fn take_ticket(&self, call: &Value) -> Ticket {
        self.tickets.lock().unwrap().remove(&of(call)).unwrap()
    }
}

fn keep(ticket: Ticket, tickets: &Mutex<HashMap<u64, Ticket>>, reply: &Reply) {
    let (token, owner, domain, remaining) =
        (ticket.token(), ticket.owner(), ticket.domain(), ticket.remaining());
    tickets.lock().unwrap().insert(reply.id, ticket);
    reply.ticket(token, owner, domain, remaining);
}
