//! The engine, the model and the ledger go through the same schedule together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ticketing_engine::{Config, ConnId, Effect, Engine, Input, Nanos, Request, SECOND, Seq};

use crate::ledger::Ledger;
use crate::machine;
use crate::model::{Key, Model, Said};
use crate::schedule::{
    CONNECTIONS, CROWDED, Fate, KEYS, Schedule, Step, Time, Token, in_office, with_an_end, with_crowds,
};

struct Lockstep {
    engine: Engine,
    /// The same engine with another seed of its hash tables, which must not show.
    twin: Engine,
    model: Model,
    ledger: Ledger,
    now: Nanos,
    in_flight: Vec<Seq>,
    /// The earliest batch that is known not to have been applied: none after it was.
    lost: Option<Seq>,
    retired: bool,
    connections: [ConnId; CONNECTIONS],
    next_connection: u64,
    /// What happened, in words.
    story: String,
    /// How many of each kind of effect and answer came out.
    seen: Seen,
}

type Seen = BTreeMap<&'static str, u64>;

/// What went wrong; the story up to there is told elsewhere.
type Outcome = Result<(), String>;

impl Lockstep {
    fn new(schedule: &Schedule) -> Self {
        let mut lockstep = Self {
            engine: Engine::new(schedule.config),
            twin: Engine::new(Config {
                hash_seed: schedule.config.hash_seed.map(|seed| !seed),
                ..schedule.config
            }),
            model: Model::new(&schedule.config),
            ledger: Ledger::new(&schedule.config, &KEYS),
            now: 100 * SECOND,
            in_flight: Vec::new(),
            lost: None,
            retired: false,
            connections: [ConnId(0); CONNECTIONS],
            next_connection: 1,
            story: format!("{:?}\n", schedule.config),
            seen: Seen::new(),
        };
        for slot in 0..CONNECTIONS {
            lockstep.connect(slot);
        }
        lockstep
    }

    fn connect(&mut self, slot: usize) {
        self.connections[slot] = ConnId(self.next_connection);
        self.next_connection += 1;
    }

    fn run(&mut self, schedule: &Schedule) -> Outcome {
        for step in &schedule.steps {
            self.step(step)?;
            self.compare()?;
        }
        self.finish()
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Acquire { conn, key, owner, wait_secs, lease_secs, late_ns } => {
                let received = self.now - late_ns;
                self.request(conn, Request::Acquire { wait_secs, lease_secs, owner, key, received });
            }
            Step::Crowd { conn, ref owners, wait_secs } => {
                for owner in owners.clone() {
                    let (key, lease_secs, received) = (CROWDED, 250, self.now);
                    self.request(conn, Request::Acquire { wait_secs, lease_secs, owner, key, received });
                }
            }
            Step::Disperse { conn, ref owners } => {
                for owner in owners.clone() {
                    self.request(conn, Request::Cancel { owner, key: CROWDED });
                }
            }
            Step::Release { conn, key, token } => {
                let token = self.token(key, token);
                self.request(conn, Request::Release { token, key });
            }
            Step::Cancel { conn, key, owner } => self.request(conn, Request::Cancel { owner, key }),
            Step::Place { conn, key, owner } => self.request(conn, Request::Place { owner, key }),
            Step::Verify { conn, key, owner } => self.request(conn, Request::Verify { owner, key }),
            Step::Close { conn } => {
                self.handle(Input::Closed(self.connections[conn]));
                self.connect(conn);
            }
            Step::Undelivered { key, token } => {
                let token = self.token(key, token);
                self.handle(Input::Undelivered { token, key });
            }
            Step::Pass { time } => self.pass(time),
            Step::Tick => self.handle(Input::Tick),
            Step::Seal => {
                self.seal()?;
            }
            Step::Drain => self.drain()?,
            Step::Fate(fate) => self.fate(fate),
            Step::CatchUp => self.catch_up()?,
            Step::RaiseCeiling { by } => {
                let ceiling = self.model.next_token().unwrap_or(u64::MAX).saturating_add(by - 1);
                self.handle(Input::TokenCeiling(ceiling));
            }
            Step::DrainServer => self.handle(Input::Drain),
            Step::Retire => {
                self.retired = true;
                self.handle(Input::Retire);
            }
        }
        Ok(())
    }

    fn request(&mut self, slot: usize, request: Request<'static>) {
        self.handle(Input::Request(self.connections[slot], request));
    }

    fn handle(&mut self, input: Input<'static>) {
        self.tell(&machine::input(self.now, input));
        self.ledger.see(self.now, input);
        self.model.handle(self.now, input);
        self.engine.handle(self.now, input);
        self.twin.handle(self.now, input);
    }

    fn token(&self, key: Key, token: Token) -> u64 {
        let next = self.model.next_token().unwrap_or(u64::MAX);
        match token {
            Token::Current => self.model.current_token(key).unwrap_or(next),
            Token::Told => self.ledger.told_token(key).unwrap_or(next),
            Token::Next => next,
            Token::OfAnotherKey => {
                let others = KEYS.iter().filter(|other| **other != key);
                others.filter_map(|other| self.model.current_token(other)).next().unwrap_or(next)
            }
        }
    }

    fn pass(&mut self, time: Time) {
        let deadline = self.model.next_deadline().unwrap_or(self.now);
        let then = match time {
            Time::Nanos(nanos) => self.now + nanos,
            Time::ToDeadline => deadline,
            Time::JustBeforeDeadline => deadline - 1,
        };
        self.now = self.now.max(then);
        let now = self.now;
        self.tell(&format!("it is {}.{:09} s", now / SECOND, now % SECOND));
    }

    /// Whether there was anything to seal.
    fn seal(&mut self) -> Result<bool, String> {
        let expected = self.model.seal();
        let batch = self.engine.seal();
        let words = |effects: &mut dyn Iterator<Item = Effect<'_>>| {
            effects.map(machine::effect).collect::<Vec<_>>().join("; ")
        };
        let expected = expected.map(|(seq, effects)| (seq, words(&mut effects.into_iter())));
        let sealed = batch.as_ref().map(|batch| (batch.seq(), words(&mut batch.effects())));
        self.tell(&match &sealed {
            Some((seq, effects)) => format!("batch {seq}: {effects}"),
            None => "nothing to seal".to_owned(),
        });
        if sealed != expected {
            return Err(format!("the engine sealed {sealed:?}, the model {expected:?}"));
        }
        let twin = self.twin.seal();
        if twin.as_ref().map(|batch| (batch.seq(), words(&mut batch.effects()))) != sealed {
            return Err("the twin sealed something else".to_owned());
        }
        twin.into_iter().for_each(|batch| self.twin.recycle(batch));
        let Some(batch) = batch else { return Ok(false) };
        for effect in batch.effects() {
            *self.seen.entry(machine::kind_of_effect(effect)).or_default() += 1;
        }
        self.ledger.sealed(batch.seq(), batch.effects());
        self.in_flight.push(batch.seq());
        self.engine.recycle(batch);
        Ok(true)
    }

    fn drain(&mut self) -> Outcome {
        let expected = self.model.drain();
        let mut said = Vec::new();
        self.engine.drain(|to, answer| {
            self.ledger.told(self.now, to, answer);
            *self.seen.entry(machine::kind_of_answer(&answer)).or_default() += 1;
            said.push(machine::answer(to, answer));
        });
        for words in &said {
            let _ = writeln!(self.story, "    -> {words}");
        }
        let mut twin = Vec::new();
        self.twin.drain(|to, answer| twin.push(machine::answer(to, answer)));
        if twin != said {
            return Err(format!("the engine said {said:#?}, its twin {twin:#?}"));
        }
        let (said, expected) = in_comparable_order(said, &expected);
        if said != expected {
            return Err(format!("the engine said {said:#?}, the model {expected:#?}"));
        }
        Ok(())
    }

    fn fate(&mut self, fate: Fate) {
        match fate {
            Fate::Commit => {
                if let Some(&seq) = self.in_flight.first()
                    && self.lost.is_none_or(|lost| seq < lost)
                {
                    self.in_flight.remove(0);
                    self.handle(Input::Committed(seq));
                }
            }
            Fate::Refuse { which } => self.lose(which, Input::Refused),
            Fate::Unknown { which } => self.lose(which, Input::Unknown),
        }
    }

    fn lose(&mut self, which: usize, fate: fn(Seq) -> Input<'static>) {
        if self.retired && which < self.in_flight.len() {
            let seq = self.in_flight.remove(which);
            self.lost = Some(self.lost.map_or(seq, |lost| lost.min(seq)));
            self.handle(fate(seq));
        }
    }

    fn catch_up(&mut self) -> Outcome {
        while self.seal()? || !self.in_flight.is_empty() {
            let left = self.in_flight.len();
            self.fate(Fate::Commit);
            if self.in_flight.len() == left {
                self.fate(Fate::Unknown { which: 0 });
            }
        }
        self.drain()
    }

    /// Time goes on until nothing is left: no answer owed, no lock, no tombstone.
    fn finish(&mut self) -> Outcome {
        self.tell("and so on, until nothing is left");
        self.catch_up()?;
        while let Some(deadline) = self.model.next_deadline() {
            self.now = self.now.max(deadline);
            self.handle(Input::Tick);
            self.compare()?;
            self.catch_up()?;
            self.compare()?;
        }
        self.ledger.finish();
        self.compare()?;
        if !self.retired {
            self.compare_counts()?;
            if !self.ledger.table_is_empty() {
                return Err("something is left that no timer will end".to_owned());
            }
        }
        for conn in self.connections {
            self.handle(Input::Closed(conn));
        }
        match self.engine.stats().connections {
            0 => Ok(()),
            left => Err(format!("{left} connections are remembered, though all have closed")),
        }
    }

    fn compare(&self) -> Outcome {
        if !self.ledger.objections().is_empty() {
            return Err(self.ledger.objections().join("\n"));
        }
        let engine = (self.engine.next_deadline(), self.model.next_token().map(|_| self.engine.next_token()));
        let model = (self.model.next_deadline(), self.model.next_token());
        if engine != model {
            return Err(format!("next deadline and token: the engine says {engine:?}, the model {model:?}"));
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

    fn compare_counts(&self) -> Outcome {
        let seen = |kind| self.seen.get(kind).copied().unwrap_or(0);
        let released = seen("release") + seen("release and hand off");
        let expired = seen("expire") + seen("expire and hand off");
        let stats = self.engine.stats();
        let counted = [stats.granted, stats.released, stats.expired];
        if counted
            != [seen("grant") + seen("release and hand off") + seen("expire and hand off"), released, expired]
        {
            return Err(format!("grants, releases, expiries: {counted:?} counted, {:?} seen", self.seen));
        }
        Ok(())
    }

    fn tell(&mut self, what: &str) {
        let _ = writeln!(self.story, "  {what}");
    }
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

fn agree(schedule: &Schedule) -> Result<Seen, TestCaseError> {
    let mut lockstep = Lockstep::new(schedule);
    match lockstep.run(schedule) {
        Ok(()) => Ok(lockstep.seen),
        Err(objection) => Err(TestCaseError::fail(format!("\n{}\n{objection}\n", lockstep.story))),
    }
}

/// Every schedule is a small world of its own, and quick: so many of them.
fn many() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn an_engine_in_office_agrees_with_the_model(schedule in in_office()) {
        agree(&schedule)?;
    }

    #[test]
    fn an_engine_that_drains_or_loses_its_office_agrees_with_the_model(schedule in with_an_end()) {
        agree(&schedule)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..many() })]

    #[test]
    fn an_engine_with_long_queues_agrees_with_the_model(schedule in with_crowds()) {
        agree(&schedule)?;
    }
}

/// The schedules above would prove little if they did not go everywhere.
#[test]
fn schedules_reach_every_effect_and_answer() {
    let mut seen = Seen::new();
    let mut runner = TestRunner::deterministic();
    for schedules in [in_office().boxed(), with_an_end().boxed()] {
        for _ in 0..200 {
            let schedule = schedules.new_tree(&mut runner).unwrap().current();
            seen.extend(agree(&schedule).unwrap());
        }
    }
    let all = [
        "bury",
        "busy",
        "close overloaded",
        "close unknown",
        "expire",
        "expire and hand off",
        "forget",
        "grant",
        "granted",
        "not held",
        "not leader",
        "place",
        "release",
        "release and hand off",
        "released",
        "timed out",
        "verified",
        "verified busy",
    ];
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), all);
}
