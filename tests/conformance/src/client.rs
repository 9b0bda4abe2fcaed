//! Plays the client's part: has the runner make the calls, in order, and
//! compares what comes of them.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::runner::{ConnectionReply, Pending, Reply, Runner};
use crate::scenario::{
    BrokerCall, Call, ClientStep, ConnectionLike, Detail, Do, Expected, Key, Kind, Range, Trust, Until,
};
use crate::stage::Stage;

/// Pause between two looks at a broker's connections.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The types of the runner's language cannot say what a call needs, and the
/// scenario allows that.
#[derive(Debug)]
pub(crate) struct Inexpressible(String);

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this language cannot say {:?}", self.0)
    }
}

impl std::error::Error for Inexpressible {}

/// A call that was made.
struct Made {
    pending: Pending,
    may_be_inexpressible: bool,
}

pub(crate) struct Client<'a> {
    stage: &'a Stage,
    runner: Runner,
    /// File with the certificate of the known authority, and its text.
    ca: Option<(String, String)>,
    made: HashMap<String, Made>,
    /// Number of each call that was made.
    numbers: HashMap<String, u64>,
    /// Brokers that are not closed yet.
    brokers: Vec<String>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(stage: &'a Stage, runner: Runner, ca: Option<(String, String)>) -> Self {
        let (made, numbers, brokers) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { stage, runner, ca, made, numbers, brokers }
    }

    pub(crate) async fn play(&mut self, steps: Vec<ClientStep>) -> anyhow::Result<()> {
        for (index, step) in steps.into_iter().enumerate() {
            let told = format!("client, step {}", index + 1);
            self.stage.client_at(format!("step {}, {step:?}", index + 1));
            match step {
                ClientStep::Do(step) => self.make(step).await.context(told)?,
                ClientStep::Outcome(outcome) => {
                    self.settle(&outcome.of, &outcome.is, outcome.within_ms).await.context(told)?;
                }
                ClientStep::Until(until) => self.until(&until).await.context(told)?,
                ClientStep::Signal(name) => self.stage.signal(&name),
                ClientStep::Await(name) => self.stage.signalled(&name).await,
                ClientStep::Since(since) => {
                    self.stage.since(&since).map_err(anyhow::Error::msg).context(told)?;
                }
                ClientStep::PauseMs(ms) => sleep(Duration::from_millis(ms)).await,
            }
        }
        self.stage.client_at("its part is over".into());
        Ok(())
    }

    /// Closes the brokers that are still there.
    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        for broker in std::mem::take(&mut self.brokers) {
            self.stage.client_at(format!("the last close of {broker:?}"));
            let fields = fields(json!({ "broker": broker }));
            let pending = self.runner.call("close", fields, self.stage)?;
            let reply = pending.reply.await.context("the runner dropped the call")?;
            self.check("the last close", &Expected(vec![Detail::of(Kind::Done)]), None, &reply).await?;
        }
        Ok(())
    }

    async fn make(&mut self, step: Do) -> anyhow::Result<()> {
        let name = step.name().to_owned();
        let fields = self.fields(&name, &step.call)?;
        let pending = self.runner.call(step.call.kind(), fields, self.stage)?;
        self.numbers.insert(name.clone(), pending.id);
        // Code that blocks in an acquire can do neither of the two.
        let needs_async = matches!(step.call, Call::Cancel(_) | Call::Place(_));
        let may_be_inexpressible = step.may_be_inexpressible || needs_async;
        self.made.insert(name.clone(), Made { pending, may_be_inexpressible });
        let done = Expected(vec![Detail::of(Kind::Done)]);
        let expected = match (&step.is, step.call.is_instant()) {
            (Some(expected), _) => expected,
            (None, true) => &done,
            (None, false) => return Ok(()),
        };
        let kind = self.settle(&name, expected, step.within_ms).await?;
        if let (Call::Broker(_), Kind::Done) = (&step.call, kind) {
            self.brokers.push(name);
        } else if let Call::Close { broker } = &step.call {
            self.brokers.retain(|open| open != broker);
        }
        Ok(())
    }

    /// Waits for the outcome of a call and compares it.
    async fn settle(
        &mut self,
        name: &str,
        expected: &Expected,
        within: Option<Range>,
    ) -> anyhow::Result<Kind> {
        let made = self.made.remove(name).with_context(|| format!("{name:?} has no outcome to come"))?;
        let reply = made.pending.reply.await.context("the runner dropped the call")?;
        if made.may_be_inexpressible && reply.kind == Kind::Inexpressible {
            return Err(Inexpressible(name.to_owned()).into());
        }
        self.check(name, expected, within, &reply).await?;
        Ok(reply.kind)
    }

    fn fields(&self, name: &str, call: &Call) -> anyhow::Result<Map<String, Value>> {
        let of = call.of().and_then(|earlier| self.numbers.get(earlier));
        let mut fields = fields(match call {
            Call::Broker(broker) => self.broker_fields(name, broker)?,
            Call::WaitReady { timeout, .. } | Call::Verify { timeout, .. } => json!({ "timeout": timeout.0 }),
            Call::Acquire(acquire) => json!({
                "wait": acquire.wait.0,
                "lease": acquire.lease.0,
                "min_remaining": acquire.min_remaining.as_ref().map(|seconds| &seconds.0),
            }),
            Call::TryAcquire { lease, .. } => json!({ "lease": lease.0 }),
            Call::ReleaseToken { token, .. } => json!({ "token": token.0.to_string() }),
            Call::Cancel(_)
            | Call::Place(_)
            | Call::Release(_)
            | Call::Drop(_)
            | Call::Detach(_)
            | Call::Remaining(_)
            | Call::Close { .. } => json!({}),
        });
        fields.extend(of.map(|&id| ("of".to_owned(), id.into())));
        fields.extend(call.broker().map(|broker| ("broker".to_owned(), broker.into())));
        fields.extend(call.key().map(key_field));
        fields.retain(|_, value| !value.is_null());
        Ok(fields)
    }

    fn broker_fields(&self, name: &str, broker: &BrokerCall) -> anyhow::Result<Value> {
        let tls = match &broker.tls {
            None => Value::Null,
            Some(tls) => {
                let ca = || self.ca.as_ref().context("a client cannot know the authority: no node has TLS");
                let mut fields = fields(match tls.trust {
                    Trust::KnownFile => json!({ "ca_file": ca()?.0 }),
                    Trust::KnownPem => json!({ "ca_pem": ca()?.1 }),
                    Trust::System => json!({}),
                    Trust::Anybody => json!({ "verify": false }),
                });
                fields.extend(
                    tls.server_name.iter().map(|name| ("server_name".to_owned(), name.clone().into())),
                );
                Value::Object(fields)
            }
        };
        Ok(json!({
            "broker": name,
            "addresses": broker.addresses,
            "token": broker.token,
            "tls": tls,
            "expect_domain": broker.expect_domain,
            "max_pending": broker.max_pending,
        }))
    }

    async fn until(&mut self, until: &Until) -> anyhow::Result<()> {
        let mut last = String::new();
        loop {
            let fields = fields(json!({ "broker": until.broker }));
            let pending = self.runner.call("connections", fields, self.stage)?;
            let reply = pending.reply.await.context("the runner dropped the call")?;
            if until.connections.iter().all(|like| like.is_among(&reply.connections)) {
                return Ok(());
            }
            let seen = format!("{:?}", reply.connections);
            if seen != last {
                self.stage.record(format_args!("until: not yet {seen}"));
                last = seen;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Compares an outcome with those that are right.
    async fn check(
        &self,
        name: &str,
        Expected(expected): &Expected,
        within: Option<Range>,
        reply: &Reply,
    ) -> anyhow::Result<()> {
        let mut wrong = match expected.iter().find(|detail| detail.kind == reply.kind) {
            Some(detail) => {
                // A script that cut a frame short may learn the owner after the client has its outcome.
                let owner = match detail.wanted_owner() {
                    Some(owner) => Some(self.stage.bound(&owner).await),
                    None => None,
                };
                detail.differences(owner, reply)
            }
            None => {
                let kinds: Vec<_> = expected.iter().map(|detail| format!("{:?}", detail.kind)).collect();
                let message = reply.message.as_deref().unwrap_or_default();
                vec![format!("kind: expected {}, got {:?} {message:?}", kinds.join(" or "), reply.kind)]
            }
        };
        if let Some(within) = within.filter(|within| !within.contains_ms(reply.elapsed_ms)) {
            wrong.push(format!("duration: expected {within}, got {:.1} ms", reply.elapsed_ms));
        }
        ensure!(wrong.is_empty(), "the outcome of {name:?}: {}", wrong.join("; "));
        Ok(())
    }
}

impl ConnectionLike {
    fn is_among(&self, connections: &[ConnectionReply]) -> bool {
        let alike = |connection: &&ConnectionReply| {
            connection.address == self.address
                && self.open.is_none_or(|open| open == connection.open)
                && (self.leads.is_none() || self.leads == connection.leads)
                && self.extension.is_none_or(|extension| extension == connection.extension)
                && (self.node.is_none() || self.node == connection.node)
                && self.last_error_says.as_ref().is_none_or(|text| {
                    connection.last_error.as_ref().is_some_and(|error| error.contains(text.as_str()))
                })
        };
        connections.iter().filter(alike).count() == self.count
    }
}

/// A key that is no text travels in hexadecimal.
fn key_field(key: &Key) -> (String, Value) {
    match key {
        Key::Text(text) => ("key".into(), text.clone().into()),
        Key::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            ("key_hex".into(), digits.into())
        }
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
