//! What the runners of Rust share: the loop over the cases, and the lines of
//! the scripted server.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use ticketing::{AcquireOptions, ConnectionStatus, Domain, TicketError, TlsOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

const SERVER: &str = env!("CARGO_BIN_EXE_ticketing-scripted-server");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

/// Cases that run at the same time. Most of their time is spent waiting.
const AT_ONCE: usize = 32;

/// Each case has a limit of its own; a client that spins can stop even that.
const AT_MOST: Duration = Duration::from_secs(300);

/// What the calls of one case leave behind in one language.
pub(crate) trait Session {
    /// The language's name in the table of results.
    const LANGUAGE: &'static str;

    fn new() -> Self;

    /// Starts a call; its reply comes when it is over.
    fn call(&mut self, call: &Value, reply: Reply);
}

/// Plays the whole table.
pub(crate) async fn play_the_table<S: Session + Send + 'static>() {
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
            let verdict = play::<S>(&case).await;
            (case, verdict)
        });
    }
    let path = format!("{}/{}.jsonl", env!("CARGO_TARGET_TMPDIR"), S::LANGUAGE);
    let mut results = std::fs::File::create(&path).unwrap();
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
    let report = std::process::Command::new(SERVER).args(["report", &path]).output().unwrap();
    std::io::stdout().write_all(&report.stdout).unwrap();
    assert!(failed.is_empty(), "{} cases failed: {failed:#?}", failed.len());
}

/// Plays one case and gives its verdict.
async fn play<S: Session>(case: &str) -> Value {
    let mut server = Command::new(SERVER)
        .args(["play", TABLE, case])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let replies = replies_to(server.stdin.take().unwrap());
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut session = S::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line.get("end").is_some() {
            return line;
        }
        let (id, to) = (line["id"].as_u64().unwrap(), replies.clone());
        session.call(&line, Reply { id, start: Instant::now(), to });
    }
    json!({ "end": "failed", "why": "the scripted server ended without a verdict" })
}

fn replies_to(mut input: ChildStdin) -> mpsc::UnboundedSender<Value> {
    let (replies, mut queue) = mpsc::unbounded_channel::<Value>();
    tokio::spawn(async move {
        while let Some(reply) = queue.recv().await {
            // After its verdict the server reads no more.
            let _ = input.write_all(format!("{reply}\n").as_bytes()).await;
        }
    });
    replies
}

/// The number of the call that this one is about.
pub(crate) fn of(call: &Value) -> u64 {
    call["of"].as_u64().unwrap()
}

pub(crate) fn text<'a>(call: &'a Value, name: &str) -> &'a str {
    call[name].as_str().unwrap()
}

/// What an acquire asks for; `None`: the types of Rust cannot hold it.
pub(crate) fn wishes(call: &Value) -> Option<(String, AcquireOptions)> {
    let min_remaining = match call.get("min_remaining") {
        Some(_) => Some(seconds(call, "min_remaining")?),
        None => None,
    };
    let (wait, lease) = (seconds(call, "wait")?, seconds(call, "lease")?);
    Some((key(call)?, AcquireOptions { wait, lease, min_remaining }))
}

/// `None`: a Rust string cannot hold it.
pub(crate) fn key(call: &Value) -> Option<String> {
    call["key"].as_str().map(str::to_owned)
}

/// `None`: a `Duration` cannot hold it. What is not said is zero; what is too
/// long to count is the longest one there is, which is how Rust says "for ever".
pub(crate) fn seconds(call: &Value, name: &str) -> Option<Duration> {
    let seconds: f64 = call.get(name).map_or(0.0, |value| value.as_str().unwrap().parse().unwrap());
    if seconds > 1e18 { Some(Duration::MAX) } else { Duration::try_from_secs_f64(seconds).ok() }
}

/// The TLS of a `broker` call.
pub(crate) fn tls(call: &Value) -> Option<TlsOptions> {
    let tls = call.get("tls")?;
    let text = |name: &str| tls[name].as_str().map(str::to_owned);
    let mut options = TlsOptions::default();
    options.ca_file = text("ca_file").map(Into::into);
    options.ca_pem = text("ca_pem").map(Into::into);
    options.server_name = text("server_name");
    if tls["verify"] == false {
        options = options.dangerously_accept_any_certificate();
    }
    Some(options)
}

/// A builder, async or blocking, with everything that a `broker` call says.
macro_rules! builder {
    ($broker:ty, $call:expr) => {{
        let call = $call;
        let addresses = call["addresses"].as_array().unwrap().iter().map(|address| address.as_str().unwrap());
        let mut builder = <$broker>::builder().addresses(addresses);
        if let Some(token) = call["token"].as_str() {
            builder = builder.token(token);
        }
        if let Some(tls) = $crate::runner::tls(call) {
            builder = builder.tls(tls);
        }
        if let Some(domain) = call["expect_domain"].as_str() {
            builder = builder.expect_domain(ticketing::Domain::parse(domain).unwrap());
        }
        if let Some(requests) = call["max_pending"].as_u64() {
            builder = builder.max_pending(requests.try_into().unwrap());
        }
        builder
    }};
}
pub(crate) use builder;

/// Where the outcome of one call goes.
pub(crate) struct Reply {
    pub(crate) id: u64,
    start: Instant,
    to: mpsc::UnboundedSender<Value>,
}

impl Reply {
    pub(crate) fn send(&self, kind: &str, fields: Value) {
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

    pub(crate) fn done(&self) {
        self.send("done", json!({}));
    }

    pub(crate) fn inexpressible(&self) {
        self.send("inexpressible", json!({}));
    }

    pub(crate) fn outcome(&self, kind: &str, outcome: Result<(), TicketError>) {
        match outcome {
            Ok(()) => self.send(kind, json!({})),
            Err(error) => self.error(&error),
        }
    }

    pub(crate) fn ticket(&self, token: u64, owner: u64, domain: Option<Domain>, remaining: Duration) {
        let fields = json!({
            "token": token.to_string(),
            "owner": owner.to_string(),
            "domain": domain.map(|domain| domain.to_string()),
            "remaining_ms": remaining.as_secs_f64() * 1000.0,
        });
        self.send("ticket", fields);
    }

    pub(crate) fn remaining(&self, remaining: Duration) {
        self.send("remaining", json!({ "remaining_ms": remaining.as_secs_f64() * 1000.0 }));
    }

    pub(crate) fn error(&self, error: &TicketError) {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        let (owner, token) = (text(error.owner()), text(error.token()));
        self.send(error.kind().as_str(), json!({ "message": message, "owner": owner, "token": token }));
    }

    pub(crate) fn connections(&self, connections: Vec<ConnectionStatus>) {
        let seen = |status: ConnectionStatus| {
            json!({
                "address": status.address,
                "open": status.open,
                "extension": status.extension,
                "leads": status.leads,
                "node": status.node.map(|node| node.to_string()),
                "last_error": status.last_error,
            })
        };
        let connections: Vec<Value> = connections.into_iter().map(seen).collect();
        self.send("connections", json!({ "connections": connections }));
    }
}
