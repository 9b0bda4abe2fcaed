//! An engine, its twin and their model: whatever is told to one is told to all
//! three, and they must agree on every word.

use std::collections::BTreeMap;

use ticketing_engine::{Answer, Config, ConnId, Effect, Engine, Input, Nanos, Seq};

use crate::cluster::{Cluster, record_of};
use crate::machine;
use crate::model::{Model, Said};

/// What went wrong; the story up to there is told elsewhere.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// How many of each kind of effect and answer came out.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

pub(crate) struct Office {
    engine: Engine,
    /// The same engine with another seed of its hash tables, which must not show.
    twin: Engine,
    pub(crate) model: Model,
    /// Where it runs.
    pub(crate) node: usize,
    pub(crate) in_flight: Vec<Flight>,
    pub(crate) last_seq: Seq,
    /// The earliest batch that was said not to have been applied: none after it was.
    pub(crate) lost: Option<Seq>,
    pub(crate) retired: bool,
    pub(crate) seen: Seen,
}

/// A batch whose fate was not told.
pub(crate) struct Flight {
    pub(crate) seq: Seq,
    pub(crate) record: Vec<u8>,
    /// It is in the log, though another engine is in office.
    pub(crate) survived: bool,
}

impl Office {
    /// The first of all: it holds nothing.
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(0, (Engine::new(*config), Engine::new(twin_of(config)), Model::new(config)))
    }

    pub(crate) fn take(cluster: &mut Cluster, now: Nanos, node: usize, config: &Config) -> Outcome<Self> {
        Ok(Self::of(node, cluster.take_office(now, node, [config, &twin_of(config)])?))
    }

    fn of(node: usize, (engine, twin, model): (Engine, Engine, Model)) -> Self {
        let (in_flight, lost, retired, seen) = (Vec::new(), None, false, Seen::new());
        Self { engine, twin, model, node, in_flight, last_seq: 0, lost, retired, seen }
    }

    /// `now` is by the clock of its node.
    pub(crate) fn handle(&mut self, now: Nanos, input: Input<'static>) {
        self.model.handle(now, input);
        self.engine.handle(now, input);
        self.twin.handle(now, input);
    }

    /// The batch that is sealed, by number; `see` is shown its effects.
    pub(crate) fn seal(&mut self, see: impl FnOnce(Seq, Vec<Effect<'_>>)) -> Outcome<Option<String>> {
        let expected = self.model.seal();
        let batch = self.engine.seal();
        let words = |effects: &mut dyn Iterator<Item = Effect<'_>>| {
            effects.map(machine::effect).collect::<Vec<_>>().join("; ")
        };
        let expected = expected.map(|(seq, effects)| (seq, words(&mut effects.into_iter())));
        let sealed = batch.as_ref().map(|batch| (batch.seq(), words(&mut batch.effects())));
        if sealed != expected {
            return Err(format!("the engine sealed {sealed:?}, the model {expected:?}"));
        }
        let twin = self.twin.seal();
        if twin.as_ref().map(|batch| (batch.seq(), words(&mut batch.effects()))) != sealed {
            return Err(format!("the engine sealed {sealed:?}, its twin something else"));
        }
        twin.into_iter().for_each(|batch| self.twin.recycle(batch));
        let Some(batch) = batch else { return Ok(None) };
        for effect in batch.effects() {
            *self.seen.entry(machine::kind_of_effect(effect)).or_default() += 1;
        }
        see(batch.seq(), batch.effects().collect());
        self.last_seq = batch.seq();
        let (seq, record) = (batch.seq(), record_of(batch.effects()));
        self.in_flight.push(Flight { seq, record, survived: false });
        self.engine.recycle(batch);
        Ok(sealed.map(|(seq, words)| format!("batch {seq}: {words}")))
    }

    /// What is said now, in words; `told` hears it too.
    pub(crate) fn drain(&mut self, mut told: impl FnMut(ConnId, Answer<'_>)) -> Outcome<Vec<String>> {
        let expected = self.model.drain();
        let mut said = Vec::new();
        let seen = &mut self.seen;
        self.engine.drain(|to, answer| {
            told(to, answer);
            *seen.entry(machine::kind_of_answer(&answer)).or_default() += 1;
            said.push(machine::answer(to, answer));
        });
        let mut twin = Vec::new();
        self.twin.drain(|to, answer| twin.push(machine::answer(to, answer)));
        if twin != said {
            return Err(format!("the engine said {said:#?}, its twin {twin:#?}"));
        }
        let (sorted, expected) = in_comparable_order(said.clone(), &expected);
        if sorted != expected {
            return Err(format!("the engine said {sorted:#?}, the model {expected:#?}"));
        }
        Ok(said)
    }

    pub(crate) fn compare(&self) -> Outcome {
        let next_token = self.model.next_token().map(|_| self.engine.next_token());
        let engine = (self.engine.next_deadline(), next_token);
        let model = (self.model.next_deadline(), self.model.next_token());
        if engine != model {
            return Err(format!("next deadline and token: the engine says {engine:?}, the model {model:?}"));
        }
        let engine = (self.engine.pending(), self.engine.is_idle());
        let model = (self.model.pending(), self.model.is_idle());
        if engine != model {
            return Err(format!(
                "batches to be answered, and whether it is idle: the engine says {engine:?}, the model {model:?}"
            ));
        }
        let stats = self.engine.stats();
        let engine = [stats.held, stats.waiters, stats.tombstones];
        let model = [self.model.held(), self.model.waiting(), self.model.buried()].map(|count| count as u64);
        if engine != model && !self.retired {
            return Err(format!(
                "locks, waiters, tombstones: the engine has {engine:?}, the model {model:?}"
            ));
        }
        Ok(())
    }

    /// All is over: what it counted is what came out, and nobody is remembered.
    pub(crate) fn compare_at_the_end(&self) -> Outcome {
        let seen = |kind| self.seen.get(kind).copied().unwrap_or(0);
        let released = seen("release") + seen("release and hand off");
        let expired = seen("expire") + seen("expire and hand off");
        let granted = seen("grant") + seen("release and hand off") + seen("expire and hand off");
        let stats = self.engine.stats();
        let counted = [stats.granted, stats.released, stats.expired];
        if !self.retired && counted != [granted, released, expired] {
            return Err(format!("grants, releases, expiries: {counted:?} counted, {:?} seen", self.seen));
        }
        if !self.engine.is_idle() || stats.connections != 0 {
            return Err(format!("all is over, and yet there is {:?}", self.engine));
        }
        Ok(())
    }
}

fn twin_of(config: &Config) -> Config {
    Config { hash_seed: config.hash_seed.map(|seed| !seed), ..*config }
}

/// When everybody is refused at once, only the order within a key is promised.
fn in_comparable_order(mut said: Vec<String>, expected: &[Said]) -> (Vec<String>, Vec<String>) {
    let mut words = expected.iter().map(|said| machine::answer(said.to, said.answer)).collect::<Vec<_>>();
    if said.len() == words.len() {
        let mut start = 0;
        for sweep in expected.chunk_by(|one, next| one.sweep.is_some() && one.sweep == next.sweep) {
            let end = start + sweep.len();
            said[start..end].sort_by_key(|words| key_of(words));
            words[start..end].sort_by_key(|words| key_of(words));
            start = end;
        }
    }
    (said, words)
}

/// The key of a refusal: "c1: busy KEY for 7".
fn key_of(words: &str) -> String {
    words.split(' ').nth(2).unwrap_or_default().to_owned()
}
