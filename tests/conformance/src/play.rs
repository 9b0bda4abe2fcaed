//! One run of one case: set the stage, play, judge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::certificates::Authorities;
use crate::client::{Client, Inexpressible};
use crate::node::{Port, Role};
use crate::runner::Runner;
use crate::scenario::{Call, ClientStep, Scenario};
use crate::stage::Stage;
use crate::table::Case;

/// How long a client that failed may take to close.
const LAST_CLOSE: Duration = Duration::from_secs(10);

/// What became of a case.
pub(crate) enum Verdict {
    Ok,
    Failed(String),
    /// It cannot be tried: this language or this machine lacks something.
    NotApplicable(String),
}

impl Verdict {
    /// The last line that a runner gets.
    pub(crate) fn line(&self, stage: &Stage) -> Value {
        let connections: Vec<Value> = stage
            .received_bytes()
            .into_iter()
            .map(|(id, bytes)| json!({ "node": id.node, "connection": id.number, "received_bytes": bytes }))
            .collect();
        match self {
            Self::Ok => json!({ "end": "ok", "connections": connections }),
            Self::NotApplicable(why) => json!({ "end": "n/a", "why": why }),
            Self::Failed(why) => {
                json!({ "end": "failed", "why": why, "connections": connections, "record": stage.take_record() })
            }
        }
    }
}

/// Plays the case with the runner at standard input and output.
pub(crate) async fn play(case: &Case, stage: &Arc<Stage>) -> Result<Verdict> {
    let hosts = case.scenario(|_| Some(([127, 0, 0, 1], 1).into()))?.nodes;
    let mut ports = BTreeMap::new();
    for (name, node) in hosts {
        match Port::reserve(node.host) {
            Ok(port) => drop(ports.insert(name, port)),
            Err(error) if !node.host.is_ipv4() => {
                return Ok(Verdict::NotApplicable(format!("no {} on this machine: {error}", node.host)));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot bind to {}", node.host)),
        }
    }
    let scenario = case.scenario(|name| ports.get(name).map(|port| port.address))?;
    let Scenario { nodes, client: steps, limit_s, .. } = scenario;

    let authorities = nodes.values().any(|node| node.tls.is_some()).then(Authorities::new).transpose()?;
    let folder = tempfile::tempdir().context("cannot make a folder for the certificate")?;
    let ca = match &authorities {
        None => None,
        Some(authorities) => {
            let path = folder.path().join("ca.pem");
            std::fs::write(&path, authorities.known_pem()).context("cannot write the certificate")?;
            Some((path.display().to_string(), authorities.known_pem()))
        }
    };

    let mut scripts = Vec::new();
    for (name, node) in nodes {
        let port = ports.remove(&name).context("a node without a port")?;
        let tls = match (&node.tls, &authorities) {
            (Some(tls), Some(authorities)) => Some(authorities.acceptor(tls)?),
            _ => None,
        };
        let role = Role { name, node, port, tls };
        scripts.extend(role.scripts());
        role.start(stage)?;
    }

    let mut client = Client::new(stage, Runner::new(stage, secrets(&steps)), ca);
    let whole = async {
        client.play(steps).await?;
        stage.played(&scripts).await;
        client.close().await?;
        stage.all_ended().await;
        Ok(())
    };
    let judged = async {
        tokio::select! {
            biased;
            why = stage.failed() => Verdict::Failed(why),
            outcome = whole => judge(outcome),
        }
    };
    let verdict = timeout(Duration::from_secs(limit_s), judged)
        .await
        .unwrap_or_else(|_| Verdict::Failed(format!("not over after {limit_s} s{}", stage.positions())));
    if let Verdict::Ok = verdict {
        return Ok(stage.failure().map_or(Verdict::Ok, Verdict::Failed));
    }
    // Our ports must stay ours until nobody dials them any more: the next
    // scenario may be given the same ones.
    let _ = timeout(LAST_CLOSE, client.close()).await;
    Ok(verdict)
}

fn judge(outcome: Result<()>) -> Verdict {
    match outcome {
        Ok(()) => Verdict::Ok,
        Err(error) if error.is::<Inexpressible>() => Verdict::NotApplicable(format!("{error:#}")),
        Err(error) => Verdict::Failed(format!("{error:#}")),
    }
}

/// Tokens that no outcome may show; a very short one stands in any text.
fn secrets(steps: &[ClientStep]) -> Vec<String> {
    let mut secrets = Vec::new();
    for step in steps {
        if let ClientStep::Do(step) = step
            && let Call::Broker(broker) = &step.call
        {
            secrets.extend(broker.token.clone().filter(|token| token.len() >= 6));
        }
    }
    secrets
}
