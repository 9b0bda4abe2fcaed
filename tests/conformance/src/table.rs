//! The table: every scenario of every file in a folder, checked as a whole.

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::expand;
use crate::scenario::{Answer, ClientStep, Expected, Listen, Owner, Request, Scenario, Step};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What the scenarios of this file have in common.
    about: String,
    scenarios: Vec<Value>,
}

/// A scenario with its parameters in place, and places left for addresses.
#[derive(Debug)]
pub(crate) struct Case {
    /// `scenario`, or `scenario[parameter=value,…]`.
    pub(crate) name: String,
    raw: Value,
}

/// Every case of the table in `folder`, in the order of files and scenarios.
pub(crate) fn load(folder: &Path) -> Result<Vec<Case>> {
    read(folder, |_| true)
}

/// The case with that name.
pub(crate) fn find(folder: &Path, name: &str) -> Result<Case> {
    let scenario = name.split('[').next().unwrap_or(name);
    read(folder, |other| other == scenario)?
        .into_iter()
        .find(|case| case.name == name)
        .with_context(|| format!("the table has no case {name:?}"))
}

fn read(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<Case>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .with_context(|| format!("cannot list {}", folder.display()))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    ensure!(!files.is_empty(), "{} holds no .json file", folder.display());

    let mut names = HashSet::new();
    let mut cases = Vec::new();
    for path in files {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: File = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        ensure!(!file.about.is_empty(), "{}: `about` says nothing", path.display());
        for scenario in file.scenarios {
            let name = scenario.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let told = || format!("{}, scenario {name:?}", path.display());
            ensure!(names.insert(name.clone()), "{}: the name is taken", told());
            if !wanted(&name) {
                continue;
            }
            for (label, raw) in expand::cases(scenario).with_context(told)? {
                let name = if label.is_empty() { name.clone() } else { format!("{name}[{label}]") };
                let case = Case { name, raw };
                case.check().with_context(|| format!("{}, case {:?}", path.display(), case.name))?;
                cases.push(case);
            }
        }
    }
    Ok(cases)
}

impl Case {
    /// The scenario with each `{addr:NODE}` and `{port:NODE}` in place.
    pub(crate) fn scenario(&self, address: impl Fn(&str) -> Option<SocketAddr>) -> Result<Scenario> {
        let mut value = self.raw.clone();
        fill_in(&mut value, &address)?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            anyhow!("at {path}: {}", error.into_inner())
        })
    }

    fn check(&self) -> Result<()> {
        let nodes = self.raw.get("nodes").and_then(Value::as_object).context("no `nodes`")?;
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let scenario = self.scenario(|name| nodes.contains_key(name).then_some(anywhere))?;
        let legal = |name: &str| {
            name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')) && !name.is_empty()
        };
        ensure!(legal(&scenario.name), "a scenario's name is snake_case");
        ensure!(scenario.protects.ends_with('.'), "`protects` is one sentence and ends with a full stop");
        check_signals(&scenario)?;
        check_owners(&scenario)?;
        check_calls(&scenario)
    }
}

fn fill_in(value: &mut Value, address: &impl Fn(&str) -> Option<SocketAddr>) -> Result<()> {
    match value {
        Value::String(text) => *text = filled_in(text, address)?,
        Value::Array(list) => list.iter_mut().try_for_each(|item| fill_in(item, address))?,
        Value::Object(object) => object.values_mut().try_for_each(|item| fill_in(item, address))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn filled_in(text: &str, address: &impl Fn(&str) -> Option<SocketAddr>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (mark, behind) =
            after.split_once('}').with_context(|| format!("{text:?}: a brace stays open"))?;
        out += before;
        let (what, node) =
            mark.split_once(':').with_context(|| format!("nothing gives {{{mark}}} a value"))?;
        let address = address(node).with_context(|| format!("{{{mark}}}: there is no node {node:?}"))?;
        match what {
            "addr" => out += &address.to_string(),
            "port" => out += &address.port().to_string(),
            _ => bail!("nothing gives {{{mark}}} a value"),
        }
        rest = behind;
    }
    out += rest;
    Ok(out)
}

/// Whoever waits for a signal that nobody gives waits for ever.
fn check_signals(scenario: &Scenario) -> Result<()> {
    let (mut given, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    for node in scenario.nodes.values() {
        if let Listen::After(signal) = &node.listen {
            wanted.insert(signal);
        }
        for step in node.connections.iter().flatten() {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these know signals")]
            match step {
                Step::Signal(signal) => drop(given.insert(signal)),
                Step::Await(signal) => drop(wanted.insert(signal)),
                Step::Since(since) => drop(wanted.insert(&since.signal)),
                _ => {}
            }
        }
    }
    for step in &scenario.client {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these know signals")]
        match step {
            ClientStep::Signal(signal) => drop(given.insert(signal)),
            ClientStep::Await(signal) => drop(wanted.insert(signal)),
            ClientStep::Since(since) => drop(wanted.insert(&since.signal)),
            _ => {}
        }
    }
    match wanted.difference(&given).next() {
        Some(signal) => bail!("nobody gives the signal {signal:?}"),
        None => Ok(()),
    }
}

/// An answer can only name an owner that some acquire brought.
fn check_owners(scenario: &Scenario) -> Result<()> {
    let mut bound = BTreeSet::new();
    let mut used = BTreeSet::new();
    let mut request = |request: &Request| match request {
        Request::Acquire { owner: Owner::Named(name), .. } => drop(bound.insert(name.clone())),
        Request::Cancel { owner: Owner::Named(name), .. }
        | Request::Place { owner: Owner::Named(name), .. }
        | Request::Verify { owner: Owner::Named(name), .. } => drop(used.insert(name.clone())),
        Request::Acquire { .. }
        | Request::Release { .. }
        | Request::Cancel { .. }
        | Request::Place { .. }
        | Request::Verify { .. } => {}
    };
    let mut answers = Vec::new();
    for step in scenario.nodes.values().flat_map(|node| &node.connections).flatten() {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these carry frames")]
        match step {
            Step::Expect(frame) => request(frame),
            Step::ExpectAll(frames) => frames.iter().for_each(&mut request),
            Step::Cut(cut) => request(&cut.frame),
            Step::Send(frames) => answers.extend(frames),
            Step::SendPieces(pieces) => answers.extend(&pieces.frames),
            _ => {}
        }
    }
    for answer in answers {
        if let Answer::Granted { owner: Owner::Named(name), .. }
        | Answer::GrantedUntil { owner: Owner::Named(name), .. }
        | Answer::TimedOut { owner: Owner::Named(name), .. }
        | Answer::Busy { owner: Owner::Named(name), .. }
        | Answer::Place { owner: Owner::Named(name), .. } = answer
        {
            used.insert(name.clone());
        }
    }
    match used.difference(&bound).next() {
        Some(owner) => bail!("no acquire that is expected brings the owner {owner:?}"),
        None => Ok(()),
    }
}

/// Calls have names of their own, name only earlier ones, and each has exactly
/// one outcome that the scenario expects.
fn check_calls(scenario: &Scenario) -> Result<()> {
    let mut known = HashSet::new();
    let mut open = BTreeSet::new();
    for step in &scenario.client {
        let expected = match step {
            ClientStep::Do(step) => {
                let name = step.name();
                if let Some(earlier) = step.call.of() {
                    ensure!(
                        known.contains(earlier),
                        "{name:?} names {earlier:?}, which no earlier call is called"
                    );
                }
                if let Some(broker) = step.call.broker() {
                    ensure!(known.contains(broker), "{name:?} uses {broker:?}, which no earlier call made");
                }
                ensure!(known.insert(name), "two calls are called {name:?}; tell them apart with `as`");
                if step.is.is_none() && !step.call.is_instant() {
                    open.insert(name);
                }
                step.is.as_ref()
            }
            ClientStep::Outcome(outcome) => {
                let name = outcome.of.as_str();
                ensure!(open.remove(name), "{name:?} has no outcome that is still to come");
                Some(&outcome.is)
            }
            ClientStep::Until(until) => {
                let broker = until.broker.as_str();
                ensure!(known.contains(broker), "`until` uses {broker:?}, which no earlier call made");
                None
            }
            ClientStep::Signal(_) | ClientStep::Await(_) | ClientStep::Since(_) | ClientStep::PauseMs(_) => {
                None
            }
        };
        expected.map_or(Ok(()), check_expected)?;
    }
    match open.first() {
        Some(name) => bail!("nothing is expected of the call {name:?}"),
        None => Ok(()),
    }
}

fn check_expected(Expected(details): &Expected) -> Result<()> {
    ensure!(!details.is_empty(), "a list of outcomes without one");
    for detail in details {
        let silent = detail.says.is_empty();
        ensure!(silent || detail.kind.is_error(), "only errors say something, {:?} does not", detail.kind);
    }
    Ok(())
}
