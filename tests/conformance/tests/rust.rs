//! The whole table, run by the Rust client.
//!
//! `CONFORMANCE_ONLY=text` plays only the cases with that text in their name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod runner;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use runner::{Reply, builder, key, of, play_the_table, seconds, text, wishes};
use serde_json::{Value, json};
use ticketing::{Placement, Ticket, TicketBroker, TicketError, Verdict};
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_client_keeps_every_promise_of_the_table() {
    play_the_table::<Session>().await;
}

type Shared<T> = Arc<Mutex<HashMap<u64, T>>>;

#[derive(Default)]
struct Session {
    brokers: HashMap<String, TicketBroker>,
    placements: HashMap<u64, Placement>,
    cancels: HashMap<u64, oneshot::Sender<()>>,
    tickets: Shared<Ticket>,
    errors: Shared<Arc<TicketError>>,
}

impl runner::Session for Session {
    const LANGUAGE: &'static str = "rust";

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
            "cancel" => {
                // The acquire may be over: then there is nothing to cancel.
                let _ = self.cancels.remove(&of(call)).map(|cancel| cancel.send(()));
                reply.done();
            }
            "place" => {
                let placement = self.placements[&of(call)].clone();
                tokio::spawn(async move {
                    match placement.place().await {
                        Ok(seen) => {
                            reply.send("place", json!({ "place": seen.place, "waiters": seen.waiters }));
                        }
                        Err(error) => reply.error(&error),
                    }
                });
            }
            "release" => {
                let ticket = self.take_ticket(call);
                tokio::spawn(async move { reply.outcome("released", ticket.release().await) });
            }
            "release_token" => {
                let broker = self.broker(call);
                let Some(key) = key(call) else { return reply.inexpressible() };
                let token = text(call, "token").parse().unwrap();
                tokio::spawn(async move { reply.outcome("released", broker.release(&key, token).await) });
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
                let error = Arc::clone(&self.errors.lock().unwrap()[&of(call)]);
                let (tickets, timeout) = (Arc::clone(&self.tickets), seconds(call, "timeout").unwrap());
                tokio::spawn(async move {
                    match error.verify(timeout).await {
                        Ok(Verdict::Held(ticket)) => keep(ticket, &tickets, &reply),
                        Ok(Verdict::NotAcquired) => reply.send("not_acquired", json!({})),
                        Err(error) => reply.error(&error),
                    }
                });
            }
            "wait_ready" => {
                let (broker, timeout) = (self.broker(call), seconds(call, "timeout").unwrap());
                tokio::spawn(async move { reply.outcome("ready", broker.wait_ready(timeout).await) });
            }
            "connections" => reply.connections(self.broker(call).connections()),
            "close" => {
                let broker = self.broker(call);
                tokio::spawn(async move {
                    broker.close().await;
                    reply.done();
                });
            }
            other => panic!("an unknown call: {other}"),
        }
    }
}

impl Session {
    fn acquire(&mut self, call: &Value, reply: Reply) {
        let broker = self.broker(call);
        let Some((key, options)) = wishes(call) else { return reply.inexpressible() };
        let acquire = match text(call, "call") {
            "try_acquire" => broker.try_acquire(&key, options.lease),
            _ => broker.acquire_with(&key, options),
        };
        let (cancel, cancelled) = oneshot::channel();
        self.placements.insert(reply.id, acquire.placement());
        self.cancels.insert(reply.id, cancel);
        let (tickets, errors) = (Arc::clone(&self.tickets), Arc::clone(&self.errors));
        tokio::spawn(async move {
            tokio::select! {
                outcome = acquire => match outcome {
                    Ok(ticket) => keep(ticket, &tickets, &reply),
                    Err(error) => {
                        let error = Arc::new(error);
                        errors.lock().unwrap().insert(reply.id, Arc::clone(&error));
                        reply.error(&error);
                    }
                },
                Ok(()) = cancelled => reply.send("cancelled", json!({})),
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
