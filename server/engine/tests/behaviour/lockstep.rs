//! The engines, their models, the tables of all nodes and the ledger go through the
//! same schedule together.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ticketing_engine::{ConnId, Input, Nanos, Request, SECOND};

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::machine;
use crate::model::Key;
use crate::office::{Office, Outcome, Seen};
use crate::schedule::{
    CONNECTIONS, CROWDED, Fate, KEYS, Schedule, Step, Time, Token, Word, in_office, with_an_end, with_crowds,
    with_successors,
};

struct Lockstep<'a> {
    schedule: &'a Schedule,
    /// Every engine so far. The last one is in office, or nobody is; those before may
    /// not know yet that they are not.
    offices: Vec<Office>,
    cluster: Cluster,
    ledger: Ledger,
    now: Nanos,
    /// Each leads to the engine of this number.
    connections: [(ConnId, usize); CONNECTIONS],
    /// Those that nobody uses any more, but that are open.
    left: Vec<(ConnId, usize)>,
    next_connection: u64,
    /// What happened, in words.
    story: String,
}

impl<'a> Lockstep<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let mut lockstep = Self {
            schedule,
            offices: vec![Office::new(&schedule.config)],
            cluster: Cluster::new(schedule.ahead),
            ledger: Ledger::new(&schedule.config, &KEYS),
            now: 100 * SECOND,
            connections: [(ConnId(0), 0); CONNECTIONS],
            left: Vec::new(),
            next_connection: 1,
            story: format!("{:?}\n", schedule.config),
        };
        for slot in 0..CONNECTIONS {
            lockstep.connect(slot);
        }
        lockstep
    }

    fn connect(&mut self, slot: usize) {
        self.connections[slot] = (ConnId(self.next_connection), self.offices.len() - 1);
        self.next_connection += 1;
    }

    fn run(&mut self) -> Outcome {
        for step in &self.schedule.steps {
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
                let (conn_id, office) = self.connections[conn];
                self.handle(office, Input::Closed(conn_id));
                self.connect(conn);
            }
            Step::Undelivered { key, token } => {
                let token = self.token(key, token);
                self.handle(self.last(), Input::Undelivered { token, key });
            }
            Step::Pass { time } => self.pass(time),
            Step::Tick => self.handle_all(Input::Tick),
            Step::Seal => {
                for office in 0..self.offices.len() {
                    self.seal(office)?;
                }
            }
            Step::Drain => self.drain()?,
            Step::Fate { fate, back } => self.fate(self.last().saturating_sub(back), fate)?,
            Step::CatchUp => self.catch_up()?,
            Step::RaiseCeiling { by } => {
                let next = self.office().model.next_token();
                let ceiling = next.unwrap_or(u64::MAX).saturating_add(by - 1);
                self.handle(self.last(), Input::TokenCeiling(ceiling));
            }
            Step::DrainServer => self.handle(self.last(), Input::Drain),
            Step::Retire => self.handle(self.last(), Input::Retire),
            Step::Succeed { node, survive, reconnect } => self.succeed(node, survive, reconnect)?,
            Step::Apply { node, entries } => self.cluster.catch_up(self.now, node, entries)?,
            Step::TakeSnapshot { of } => self.cluster.take_snapshot(of),
            Step::SendSnapshot { to, transit_ns } => {
                if self.cluster.send_snapshot(self.now, transit_ns, to)? {
                    self.pass(Time::Nanos(transit_ns));
                }
            }
        }
        Ok(())
    }

    fn office(&self) -> &Office {
        &self.offices[self.last()]
    }

    fn last(&self) -> usize {
        self.offices.len() - 1
    }

    fn request(&mut self, slot: usize, request: Request<'static>) {
        let (conn, office) = self.connections[slot];
        self.handle(office, Input::Request(conn, request));
    }

    fn handle_all(&mut self, input: Input<'static>) {
        for office in 0..self.offices.len() {
            self.handle(office, input);
        }
    }

    fn handle(&mut self, number: usize, input: Input<'static>) {
        self.tell(&format!("e{number}: {}", machine::input(self.now, input)));
        self.ledger.see(self.now, number, input);
        let office = &mut self.offices[number];
        office.retired |= input == Input::Retire;
        let local = |time| self.cluster.clock(office.node, time);
        let input = match input {
            Input::Request(conn, Request::Acquire { wait_secs, lease_secs, owner, key, received }) => {
                let received = local(received);
                Input::Request(conn, Request::Acquire { wait_secs, lease_secs, owner, key, received })
            }
            other => other,
        };
        office.handle(local(self.now), input);
    }

    fn token(&self, key: Key, token: Token) -> u64 {
        let model = &self.office().model;
        let next = model.next_token().unwrap_or(u64::MAX);
        match token {
            Token::Current => model.current_token(key).unwrap_or(next),
            Token::Told => self.ledger.told_token(key).unwrap_or(next),
            Token::Next => next,
            Token::OfAnotherKey => {
                let others = KEYS.iter().filter(|other| **other != key);
                others.filter_map(|other| model.current_token(other)).next().unwrap_or(next)
            }
        }
    }

    /// When the engine in office has something to do next.
    fn next_deadline(&self) -> Option<Nanos> {
        let local = self.cluster.clock(self.office().node, self.now);
        let deadline = self.office().model.next_deadline()?;
        Some(self.now + deadline.saturating_sub(local))
    }

    fn pass(&mut self, time: Time) {
        let deadline = self.next_deadline().unwrap_or(self.now);
        let then = match time {
            Time::Nanos(nanos) => self.now + nanos,
            Time::ToDeadline => deadline,
            Time::JustBeforeDeadline => deadline.saturating_sub(1),
        };
        self.now = self.now.max(then);
        let now = self.now;
        self.tell(&format!("it is {}.{:09} s", now / SECOND, now % SECOND));
    }

    /// Whether there was anything to seal.
    fn seal(&mut self, number: usize) -> Outcome<bool> {
        let is_last = number == self.last();
        let ledger = &mut self.ledger;
        let sealed = self.offices[number].seal(|seq, effects| {
            if is_last {
                ledger.sealed(seq, effects.into_iter());
            }
        })?;
        self.tell(&match &sealed {
            Some(words) => format!("e{number}: {words}"),
            None => format!("e{number}: nothing to seal"),
        });
        Ok(sealed.is_some())
    }

    fn drain(&mut self) -> Outcome {
        for number in 0..self.offices.len() {
            let said = self.offices[number].drain(|to, answer| self.ledger.told(self.now, to, answer))?;
            for words in said {
                let _ = writeln!(self.story, "    -> {words}");
            }
        }
        Ok(())
    }

    /// The engine in office, or the last one that was, loses it; another takes over
    /// from what was applied.
    fn succeed(&mut self, node: usize, survive: usize, reconnect: bool) -> Outcome {
        let last = self.last();
        let Office { in_flight, lost, .. } = &mut self.offices[last];
        let can = in_flight.iter_mut().take_while(|flight| lost.is_none_or(|lost| flight.seq < lost));
        for flight in can.take(survive) {
            flight.survived = true;
            self.cluster.append(flight.record.clone());
            self.ledger.applied(self.now, flight.seq);
        }
        self.ledger.succeed();
        let next = Office::take(&mut self.cluster, self.now, node, &self.schedule.config)?;
        self.offices.push(next);
        let number = self.last();
        self.tell(&format!(
            "node {node} takes office with e{number}, {survive} batches of the last one survive"
        ));
        for slot in (0..CONNECTIONS).filter(|_| reconnect) {
            self.left.push(self.connections[slot]);
            self.connect(slot);
        }
        Ok(())
    }

    fn fate(&mut self, number: usize, fate: Fate) -> Outcome {
        let in_office = number == self.last();
        let office = &mut self.offices[number];
        let lost = office.lost;
        let is_behind_a_lost_one = |seq| lost.is_some_and(|lost| lost < seq);
        let (word, seq) = match fate {
            Fate::Commit if in_office => {
                let next = office.in_flight.first().filter(|flight| !is_behind_a_lost_one(flight.seq));
                if next.is_none() {
                    return Ok(());
                }
                let flight = office.in_flight.remove(0);
                self.cluster.append(flight.record);
                self.cluster.catch_up(self.now, office.node, usize::MAX)?;
                self.ledger.applied(self.now, flight.seq);
                (Word::Committed, flight.seq)
            }
            Fate::Commit | Fate::Refuse { .. } | Fate::Unknown { .. } => {
                let which =
                    if let Fate::Refuse { which } | Fate::Unknown { which } = fate { which } else { 0 };
                if which >= office.in_flight.len() {
                    return Ok(());
                }
                let flight = office.in_flight.remove(which);
                let word = match fate {
                    Fate::Unknown { .. } => Word::Unknown,
                    _ if flight.survived => Word::Committed,
                    // Not true, but an engine has to see that it cannot be.
                    Fate::Commit if is_behind_a_lost_one(flight.seq) => Word::Committed,
                    _ => Word::Refused,
                };
                (word, flight.seq)
            }
            Fate::Nonsense { seq, .. } if office.in_flight.iter().any(|flight| flight.seq == seq) => {
                return Ok(());
            }
            Fate::Nonsense { seq, word } => {
                self.handle(number, word.of(seq));
                return Ok(());
            }
        };
        if !matches!(word, Word::Committed) {
            office.lost = Some(office.lost.map_or(seq, |lost| lost.min(seq)));
            office.retired = true;
        }
        self.handle(number, word.of(seq));
        Ok(())
    }

    /// Everything decided has its fate and is answered.
    fn catch_up(&mut self) -> Outcome {
        for number in 0..self.offices.len() {
            let is_last = number == self.last();
            while self.seal(number)? || !self.offices[number].in_flight.is_empty() {
                let left = self.offices[number].in_flight.len();
                self.fate(number, Fate::Commit)?;
                if is_last && self.offices[number].in_flight.len() == left {
                    self.fate(number, Fate::Unknown { which: 0 })?;
                }
            }
        }
        self.drain()
    }

    /// Time goes on until nothing is left: no answer owed, no lock, no tombstone.
    fn finish(&mut self) -> Outcome {
        self.tell("and so on, until nothing is left");
        for deposed in 0..self.last() {
            self.handle(deposed, Input::Retire);
        }
        self.catch_up()?;
        while let Some(deadline) = self.next_deadline() {
            self.now = self.now.max(deadline);
            self.handle(self.last(), Input::Tick);
            self.compare()?;
            self.catch_up()?;
            self.compare()?;
        }
        self.ledger.finish();
        self.compare()?;
        if !self.office().retired && !self.ledger.table_is_empty() {
            return Err("something is left that no timer will end".to_owned());
        }
        for (conn, office) in std::mem::take(&mut self.left).into_iter().chain(self.connections) {
            self.handle(office, Input::Closed(conn));
        }
        self.offices.iter().try_for_each(Office::compare_at_the_end)
    }

    fn compare(&self) -> Outcome {
        if !self.ledger.objections().is_empty() {
            return Err(self.ledger.objections().join("\n"));
        }
        self.offices.iter().try_for_each(Office::compare)
    }

    fn tell(&mut self, what: &str) {
        let _ = writeln!(self.story, "  {what}");
    }
}

fn agree(schedule: &Schedule) -> Result<Seen, TestCaseError> {
    let mut lockstep = Lockstep::new(schedule);
    match lockstep.run() {
        Ok(()) => {
            let mut seen = Seen::new();
            let all = lockstep.offices.iter().flat_map(|office| &office.seen);
            all.for_each(|(kind, count)| *seen.entry(kind).or_default() += count);
            Ok(seen)
        }
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

    #[test]
    fn engines_that_follow_each_other_agree_with_their_models(schedule in with_successors()) {
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
    for schedules in [in_office().boxed(), with_an_end().boxed(), with_successors().boxed()] {
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
