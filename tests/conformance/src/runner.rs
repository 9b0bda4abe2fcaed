//! The line to the runner: a call is one line of JSON to it, an outcome is one
//! line of JSON back, in any order.

use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::scenario::Kind;
use crate::stage::Stage;

/// How a call ended, as the runner tells it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// From just before the call to its outcome, by a monotonic clock.
    pub(crate) elapsed_ms: f64,
    /// Text of an error, with that of its causes.
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) token: Option<String>,
    #[serde(default)]
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) domain: Option<String>,
    #[serde(default)]
    pub(crate) remaining_ms: Option<f64>,
    #[serde(default)]
    pub(crate) place: Option<u32>,
    #[serde(default)]
    pub(crate) waiters: Option<u32>,
    #[serde(default)]
    pub(crate) connections: Vec<ConnectionReply>,
}

/// One connection of a broker, as the client tells it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectionReply {
    pub(crate) address: String,
    pub(crate) open: bool,
    #[serde(default)]
    pub(crate) extension: bool,
    #[serde(default)]
    pub(crate) leads: Option<bool>,
    #[serde(default)]
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) last_error: Option<String>,
}

type Waiting = HashMap<u64, oneshot::Sender<Reply>>;

pub(crate) struct Runner {
    waiting: Arc<Mutex<Waiting>>,
    next_id: u64,
}

/// A call that was made; its number names it on the line.
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) reply: oneshot::Receiver<Reply>,
}

impl Runner {
    /// Reads the runner's lines from now on. Whatever is wrong with them fails
    /// the scenario, and so does a secret that shows up in one.
    pub(crate) fn new(stage: &Arc<Stage>, secrets: Vec<String>) -> Self {
        let waiting = Arc::new(Mutex::new(Waiting::new()));
        let (table, stage) = (Arc::clone(&waiting), Arc::clone(stage));
        // A thread of its own: it ends with the process, whatever it waits for.
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let taken =
                    line.map_err(|error| error.to_string()).and_then(|line| take(&line, &table, &secrets));
                match taken {
                    Ok(line) => stage.record(format_args!("runner: {line}")),
                    Err(why) => stage.fail(format!("the runner: {why}")),
                }
            }
            stage.fail("the runner has gone".into());
        });
        Self { waiting, next_id: 1 }
    }

    /// Tells the runner to make a call.
    pub(crate) fn call(
        &mut self,
        call: &str,
        fields: Map<String, Value>,
        stage: &Stage,
    ) -> io::Result<Pending> {
        let id = self.next_id;
        self.next_id += 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let mut line = Map::new();
        line.insert("id".into(), id.into());
        line.insert("call".into(), call.into());
        line.extend(fields);
        let line = Value::Object(line);
        stage.record(format_args!("call: {line}"));
        say(&line)?;
        Ok(Pending { id, reply })
    }
}

/// Writes one line to the runner.
pub(crate) fn say(line: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn take(line: &str, table: &Mutex<Waiting>, secrets: &[String]) -> Result<String, String> {
    if secrets.iter().any(|secret| line.contains(secret.as_str())) {
        return Err("the client's token shows up in an outcome".into());
    }
    let reply: Reply = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    let sender = table.lock().unwrap_or_else(PoisonError::into_inner).remove(&reply.id);
    let sender = sender.ok_or_else(|| format!("no call with this number waits: {line}"))?;
    // Whoever waited for it may have failed in the meantime.
    drop(sender.send(reply));
    Ok(line.to_owned())
}
