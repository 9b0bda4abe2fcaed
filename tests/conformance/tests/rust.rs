//! The whole table, run by the Rust client.
//!
//! `CONFORMANCE_ONLY=text` plays only the cases with that text in their name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use ticketing::{
    AcquireOptions, Domain, ErrorKind, Placement, Ticket, TicketBroker, TicketError, TlsOptions, Verdict,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

const SERVER: &str = env!("CARGO_BIN_EXE_ticketing-scripted-server");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
const RESULTS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/rust.jsonl");

/// Cases that run at the same time. Most of their time is spent waiting.
const AT_ONCE: usize = 64;

/// Each case has a limit of its own; a client that spins can stop even that.
const AT_MOST: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_client_keeps_every_promise_of_the_table() {
    std::thread::spawn(|| {
        std::thread::sleep(AT_MOST);
        eprintln!("the table is not through after {} s: something blocks the runtime", AT_MOST.as_secs());
        std::process::exit(1);
    });
    let only = std::env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let list = std::process::Command::new(SERVER).args(["list", TABLE]).output().unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut plays = JoinSet::new();
    for case in String::from_utf8(list.stdout).unwrap().lines().filter(|case| case.contains(&only)) {
        let (case, slots) = (case.to_owned(), Arc::clone(&slots));
        plays.spawn(async move {
            let _slot = slots.acquire().await.unwrap();
            let verdict = play(&case).await;
            (case, verdict)
        });
    }
    let mut results = std::fs::File::create(RESULTS).unwrap();
    let mut failed = Vec::new();
    for (case, verdict) in plays.join_all().await {
        let line = json!({ "case": case, "end": verdict["end"], "why": verdict["why"] });
        writeln!(results, "{line}").unwrap();
        if verdict["end"] == "failed" {
            println!("\n{case}: {}", verdict["why"].as_str().unwrap());
            for line in verdict["record"].as_array().into_iter().flatten() {
                println!("  {}", line.as_str().unwrap());
            }
            failed.push(case);
        }
    }
    // Straight to standard output: the table is worth seeing when all is well, too.
    let report = std::process::Command::new(SERVER).args(["report", RESULTS]).output().unwrap();
    std::io::stdout().write_all(&report.stdout).unwrap();
    assert!(failed.is_empty(), "{} cases failed: {failed:#?}", failed.len());
}

/// Plays one case and gives its verdict.
async fn play(case: &str) -> Value {
    let mut server = Command::new(SERVER)
        .args(["play", TABLE, case])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut session = Session::new(&mut server);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line.get("end").is_some() {
            return line;
        }
        session.call(&line);
    }
    json!({ "end": "failed", "why": "the scripted server ended without a verdict" })
}

/// What the calls of one case have left behind, by the number of the call.
struct Session {
    replies: mpsc::UnboundedSender<Value>,
    brokers: HashMap<String, TicketBroker>,
    placements: HashMap<u64, Placement>,
    cancels: HashMap<u64, oneshot::Sender<()>>,
    tickets: Arc<Mutex<HashMap<u64, Ticket>>>,
    errors: Arc<Mutex<HashMap<u64, Arc<TicketError>>>>,
}

impl Session {
    fn new(server: &mut Child) -> Self {
        let (replies, mut queue) = mpsc::unbounded_channel::<Value>();
        let mut input = server.stdin.take().unwrap();
        tokio::spawn(async move {
            while let Some(reply) = queue.recv().await {
                // After its verdict the server reads no more.
                let _ = input.write_all(format!("{reply}\n").as_bytes()).await;
            }
        });
        let (brokers, placements, cancels) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { replies, brokers, placements, cancels, tickets: Arc::default(), errors: Arc::default() }
    }

    /// Starts a call; its reply comes when it is over.
    fn call(&mut self, call: &Value) {
        let reply =
            Reply { id: call["id"].as_u64().unwrap(), start: Instant::now(), to: self.replies.clone() };
        let of = call["of"].as_u64().unwrap_or_default();
        match call["call"].as_str().unwrap() {
            "broker" => match build(call) {
                Ok(broker) => {
                    self.brokers.insert(call["broker"].as_str().unwrap().into(), broker);
                    reply.done();
                }
                Err(error) => reply.error(&error),
            },
            "acquire" | "try_acquire" => self.acquire(call, reply),
            "cancel" => {
                // The acquire may be over: then there is nothing to cancel.
                let _ = self.cancels.remove(&of).map(|cancel| cancel.send(()));
                reply.done();
            }
            "place" => {
                let placement = self.placements[&of].clone();
                tokio::spawn(async move {
                    match placement.place().await {
                        Ok(seen) => {
                            reply.send("place", json!({ "place": seen.place, "waiters": seen.waiters }))
                        }
                        Err(error) => reply.error(&error),
                    }
                });
            }
            "release" => {
                let ticket = self.take_ticket(of);
                tokio::spawn(async move { reply.outcome("released", ticket.release().await) });
            }
            "release_token" => {
                let broker = self.broker(call);
                let Some(key) = key(call) else { return reply.send("inexpressible", json!({})) };
                let token = call["token"].as_str().unwrap().parse().unwrap();
                tokio::spawn(async move { reply.outcome("released", broker.release(&key, token).await) });
            }
            "drop" => {
                drop(self.take_ticket(of));
                reply.done();
            }
            "detach" => {
                let _ = self.take_ticket(of).detach();
                reply.done();
            }
            "remaining" => {
                let left = self.tickets.lock().unwrap()[&of].remaining();
                reply.send("remaining", json!({ "remaining_ms": left.as_secs_f64() * 1000.0 }));
            }
            "verify" => {
                let error = Arc::clone(&self.errors.lock().unwrap()[&of]);
                let (tickets, timeout) = (Arc::clone(&self.tickets), seconds(call, "timeout").unwrap());
                tokio::spawn(async move {
                    match error.verify(timeout).await {
                        Ok(Verdict::Held(ticket)) => reply.ticket(ticket, &tickets),
                        Ok(Verdict::NotAcquired) => reply.send("not_acquired", json!({})),
                        Err(error) => reply.error(&error),
                    }
                });
            }
            "wait_ready" => {
                let (broker, timeout) = (self.broker(call), seconds(call, "timeout").unwrap());
                tokio::spawn(async move { reply.outcome("ready", broker.wait_ready(timeout).await) });
            }
            "connections" => reply.connections(&self.broker(call)),
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

    fn acquire(&mut self, call: &Value, reply: Reply) {
        let broker = self.broker(call);
        let Some((key, options)) = wishes(call) else { return reply.send("inexpressible", json!({})) };
        let acquire = if call["call"] == "try_acquire" {
            broker.try_acquire(&key, options.lease)
        } else {
            broker.acquire_with(&key, options)
        };
        let (cancel, cancelled) = oneshot::channel();
        self.placements.insert(reply.id, acquire.placement());
        self.cancels.insert(reply.id, cancel);
        let (tickets, errors) = (Arc::clone(&self.tickets), Arc::clone(&self.errors));
        tokio::spawn(async move {
            tokio::select! {
                outcome = acquire => match outcome {
                    Ok(ticket) => reply.ticket(ticket, &tickets),
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
        self.brokers[call["broker"].as_str().unwrap()].clone()
    }

    fn take_ticket(&self, of: u64) -> Ticket {
        self.tickets.lock().unwrap().remove(&of).unwrap()
    }
}

fn build(call: &Value) -> Result<TicketBroker, TicketError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let addresses = call["addresses"].as_array().unwrap().iter().map(|address| address.as_str().unwrap());
    let mut builder = TicketBroker::builder().addresses(addresses);
    if let Some(token) = text(&call["token"]) {
        builder = builder.token(token);
    }
    if let Some(tls) = call.get("tls") {
        let mut options = TlsOptions::default();
        options.ca_file = text(&tls["ca_file"]).map(Into::into);
        options.ca_pem = text(&tls["ca_pem"]).map(Into::into);
        options.server_name = text(&tls["server_name"]);
        if tls["verify"] == false {
            options = options.dangerously_accept_any_certificate();
        }
        builder = builder.tls(options);
    }
    if let Some(domain) = text(&call["expect_domain"]) {
        builder = builder.expect_domain(Domain::parse(&domain).unwrap());
    }
    if let Some(requests) = call["max_pending"].as_u64() {
        builder = builder.max_pending(requests.try_into().unwrap());
    }
    builder.build()
}

/// `None`: the types of Rust cannot hold it.
fn wishes(call: &Value) -> Option<(String, AcquireOptions)> {
    let min_remaining = match call.get("min_remaining") {
        Some(_) => Some(seconds(call, "min_remaining")?),
        None => None,
    };
    let (wait, lease) = (seconds(call, "wait")?, seconds(call, "lease")?);
    Some((key(call)?, AcquireOptions { wait, lease, min_remaining }))
}

/// `None`: a Rust string cannot hold it.
fn key(call: &Value) -> Option<String> {
    call["key"].as_str().map(str::to_owned)
}

/// `None`: a `Duration` cannot hold it. What is not said is zero.
fn seconds(call: &Value, name: &str) -> Option<Duration> {
    let text = call.get(name).map_or("0", |value| value.as_str().unwrap());
    Duration::try_from_secs_f64(text.parse().unwrap()).ok()
}

/// Where the outcome of one call goes.
struct Reply {
    id: u64,
    start: Instant,
    to: mpsc::UnboundedSender<Value>,
}

impl Reply {
    fn send(&self, kind: &str, fields: Value) {
        let elapsed_ms = self.start.elapsed().as_secs_f64() * 1000.0;
        let Value::Object(mut line) = fields else { panic!("fields are an object") };
        line.extend(Map::from_iter([
            ("id".into(), self.id.into()),
            ("kind".into(), kind.into()),
            ("elapsed_ms".into(), elapsed_ms.into()),
        ]));
        // The case may have its verdict already.
        let _ = self.to.send(Value::Object(line));
    }

    fn done(&self) {
        self.send("done", json!({}));
    }

    fn outcome(&self, kind: &str, outcome: Result<(), TicketError>) {
        match outcome {
            Ok(()) => self.send(kind, json!({})),
            Err(error) => self.error(&error),
        }
    }

    fn ticket(&self, ticket: Ticket, tickets: &Mutex<HashMap<u64, Ticket>>) {
        let fields = json!({
            "token": ticket.token().to_string(),
            "owner": ticket.owner().to_string(),
            "domain": ticket.domain().map(|domain| domain.to_string()),
            "remaining_ms": ticket.remaining().as_secs_f64() * 1000.0,
        });
        tickets.lock().unwrap().insert(self.id, ticket);
        self.send("ticket", fields);
    }

    fn error(&self, error: &TicketError) {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        let kind: ErrorKind = error.kind();
        let (owner, token) = (error.owner(), error.token());
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        self.send(kind.as_str(), json!({ "message": message, "owner": text(owner), "token": text(token) }));
    }

    fn connections(&self, broker: &TicketBroker) {
        let connections: Vec<Value> = broker
            .connections()
            .into_iter()
            .map(|status| {
                json!({
                    "address": status.address,
                    "open": status.open,
                    "extension": status.extension,
                    "leads": status.leads,
                    "node": status.node.map(|node| node.to_string()),
                    "last_error": status.last_error,
                })
            })
            .collect();
        self.send("connections", json!({ "connections": connections }));
    }
}
