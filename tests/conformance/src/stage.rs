//! What the parts of one running scenario share: signals, owners, the first
//! failure, and a record of what went over the wires.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::frames::Owners;
use crate::scenario::{Owner, Since};

/// Lines of the record that are kept, the last ones.
const RECORD_LINES: usize = 400;

/// One connection: its node, and its number there in the order of accepts, from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) node: String,
    pub(crate) number: usize,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node, self.number)
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    start: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    signals: HashMap<String, Instant>,
    owners: Owners,
    failure: Option<String>,
    connections: BTreeMap<ConnectionId, Progress>,
    /// The step that the client's part is at.
    client_step: String,
    record: VecDeque<String>,
}

/// How far a connection is.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes of the client, after TLS.
    received: usize,
    /// The step that it is at; `None`: its script is over.
    step: Option<String>,
    /// The client has ended it, or the script has.
    ended: bool,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` gives something.
    async fn when<T>(&self, ready: impl Fn(&State) -> Option<T>) -> T {
        loop {
            // Made before the look, so that no change falls between the two.
            let changed = self.changed.notified();
            if let Some(value) = ready(&self.state()) {
                return value;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Gives a signal, for ever; only the first time counts.
    pub(crate) fn signal(&self, name: &str) {
        self.change(|state| {
            state.signals.entry(name.to_owned()).or_insert_with(Instant::now);
        });
        self.record(format_args!("signal {name}"));
    }

    pub(crate) async fn signalled(&self, name: &str) {
        self.when(|state| state.signals.contains_key(name).then_some(())).await;
    }

    /// Checks how long ago a signal was given.
    pub(crate) fn since(&self, since: &Since) -> Result<(), String> {
        let given = self.state().signals.get(&since.signal).copied();
        let given = given.ok_or_else(|| format!("the signal {:?} was not given yet", since.signal))?;
        let ms = given.elapsed().as_secs_f64() * 1000.0;
        if since.ms.contains_ms(ms) {
            return Ok(());
        }
        Err(format!("{ms:.1} ms since {:?}; expected {}", since.signal, since.ms))
    }

    pub(crate) fn with_owners<T>(&self, work: impl FnOnce(&mut Owners) -> T) -> T {
        let outcome = work(&mut self.state().owners);
        self.changed.notify_waiters();
        outcome
    }

    /// Waits until the owner's acquire has come; gives its number.
    pub(crate) async fn bound(&self, owner: &Owner) -> u64 {
        self.when(|state| state.owners.get(owner)).await
    }

    /// The scenario has failed; the first reason stays.
    pub(crate) fn fail(&self, why: String) {
        self.record(format_args!("FAILED {why}"));
        self.change(|state| {
            state.failure.get_or_insert(why);
        });
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    pub(crate) async fn failed(&self) -> String {
        self.when(|state| state.failure.clone()).await
    }

    pub(crate) fn client_at(&self, step: String) {
        self.state().client_step = step;
    }

    /// A connection is at this step of its script now; `None`: the script is over.
    pub(crate) fn at_step(&self, id: &ConnectionId, step: Option<String>) {
        self.change(|state| state.connections.entry(id.clone()).or_default().step = step);
    }

    pub(crate) fn ended(&self, id: &ConnectionId) {
        self.change(|state| state.connections.entry(id.clone()).or_default().ended = true);
        self.record(format_args!("{id} ended"));
    }

    pub(crate) fn received(&self, id: &ConnectionId, bytes: &[u8]) {
        self.state().connections.entry(id.clone()).or_default().received += bytes.len();
        self.record(format_args!("{id} <- {}", crate::frames::shown(bytes)));
    }

    /// Waits until the scripts of all these connections have been played.
    pub(crate) async fn played(&self, scripts: &[ConnectionId]) {
        self.when(|state| {
            let over = |id| state.connections.get(id).is_some_and(|progress| progress.step.is_none());
            scripts.iter().all(over).then_some(())
        })
        .await;
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_ended(&self) {
        self.when(|state| state.connections.values().all(|progress| progress.ended).then_some(())).await;
    }

    /// Where everybody stands, for the report of a scenario that did not end.
    pub(crate) fn positions(&self) -> String {
        let state = self.state();
        let mut text = format!("; client: {}", state.client_step);
        for (id, progress) in &state.connections {
            let step = progress.step.as_deref().unwrap_or("its script is over");
            let open = if progress.ended { "ended" } else { "open" };
            text += &format!("; {id} ({open}): {step}");
        }
        text
    }

    /// Bytes that the client sent on each connection.
    pub(crate) fn received_bytes(&self) -> Vec<(ConnectionId, usize)> {
        self.state().connections.iter().map(|(id, progress)| (id.clone(), progress.received)).collect()
    }

    pub(crate) fn record(&self, line: fmt::Arguments<'_>) {
        let mut state = self.state();
        if state.record.len() == RECORD_LINES {
            state.record.pop_front();
        }
        let line = format!("{:9.3} ms  {line}", self.start.elapsed().as_secs_f64() * 1000.0);
        state.record.push_back(line);
    }

    pub(crate) fn take_record(&self) -> Vec<String> {
        std::mem::take(&mut self.state().record).into()
    }
}
