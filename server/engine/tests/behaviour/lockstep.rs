//! The engines, their models, the tables of all nodes and the ledger go through the
//! same schedule together.

use std::fmt::Write as _;

use ticketing_engine::{Answer, ConnId, Effect, Input, Nanos, Request, SECOND};

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::machine;
use crate::model::Key;
use crate::office::{Office, Outcome, Seen};
use crate::plain::{Plain, PlainLock};
use crate::schedule::{CONNECTIONS, CROWDED, Fate, KEYS, Schedule, Step, Time, Token, Word};

pub(crate) struct Lockstep<'a> {
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
    pub(crate) story: String,
    /// How often something happened that is worth a test.
    seen: Seen,
}

impl<'a> Lockstep<'a> {
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
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
            seen: Seen::new(),
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

    pub(crate) fn run(&mut self) -> Outcome {
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
            Step::Leave { conn } => {
                let (conn_id, office) = self.connections[conn];
                self.handle(office, Input::Leaving(conn_id));
            }
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
            Step::Fate { fate, back } => {
                if let Some(number) = self.last().checked_sub(back) {
                    self.fate(number, fate)?;
                }
            }
            Step::CatchUp => self.catch_up()?,
            Step::DrainServer => self.handle(self.last(), Input::Drain),
            Step::Retire => self.handle(self.last(), Input::Retire),
            Step::Succeed { node, survive, reconnect } => self.succeed(node, survive, reconnect)?,
            Step::Apply { node, entries } => self.cluster.catch_up(self.now, node, entries)?,
            Step::TakeSnapshot { of } => self.cluster.take_snapshot(of),
            // Nobody tells a leader what it holds.
            Step::SendSnapshot { to, .. } if to == self.office().node => {}
            Step::SendSnapshot { to, transit_ns, booted } => {
                if booted && self.offices.iter().all(|office| office.node != to) {
                    self.cluster.boot(self.now, to, 5 * SECOND);
                }
                if let Some(plain) = self.cluster.send_snapshot(self.now, transit_ns, to)? {
                    self.pass(Time::Nanos(transit_ns));
                    let times = plain.locks.values().map(|lock| lock.since);
                    let mut times = times.chain(plain.tombstones.values().copied());
                    self.saw("a snapshot held locks", !plain.locks.is_empty());
                    self.saw("a snapshot held tombstones", !plain.tombstones.is_empty());
                    self.saw("a snapshot was older than a clock", times.any(|since| since == 0));
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
        let (ledger, mut older) = (&mut self.ledger, [false; 3]);
        let sealed = self.offices[number].seal(|seq, effects| {
            if is_last {
                for effect in &effects {
                    let (Effect::Release { token: ended, .. }
                    | Effect::Expire { token: ended, .. }
                    | Effect::HandOff { ended, .. }) = *effect
                    else {
                        continue;
                    };
                    let is_older = ledger.is_of_an_earlier_office(ended);
                    older[0] |= is_older && matches!(effect, Effect::Release { .. });
                    older[1] |= is_older && matches!(effect, Effect::Expire { .. });
                    older[2] |= is_older && matches!(effect, Effect::HandOff { .. });
                }
                ledger.sealed(seq, effects.into_iter());
            }
        })?;
        self.saw("an older lock was released", older[0]);
        self.saw("an older lock expired", older[1]);
        self.saw("an older lock was handed off", older[2]);
        if is_last {
            self.expect_no_lock_overdue();
        }
        self.tell(&match &sealed {
            Some(words) => format!("e{number}: {words}"),
            None => format!("e{number}: nothing to seal"),
        });
        Ok(sealed.is_some())
    }

    /// What is over has ended by now, at the latest with the batch that was sealed.
    fn expect_no_lock_overdue(&mut self) {
        let Office { node, retired, .. } = self.offices[self.last()];
        let does_all_at_once = self.schedule.config.limits.timers_per_tick >= 100;
        if does_all_at_once && !retired {
            let clock = self.cluster.clock(node, self.now);
            for lock in self.cluster.plain(node).locks.values() {
                self.ledger.is_due(lock.token, self.now.saturating_sub(clock - lock.since));
            }
        }
    }

    fn drain(&mut self) -> Outcome {
        for number in 0..self.offices.len() {
            let (is_last, mut granted) = (number == self.last(), false);
            let said = self.offices[number].drain(|to, answer| {
                granted |= matches!(answer, Answer::Granted { .. });
                self.ledger.told(self.now, to, answer);
            })?;
            self.saw("an earlier engine told of its grant", granted && !is_last);
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
        let known = self.offices[last].retired;
        let all_survive = self.offices[last].in_flight.iter().all(|flight| flight.survived);
        self.saw("a batch survived", self.offices[last].in_flight.iter().any(|flight| flight.survived));
        self.saw("a batch was lost", !all_survive);
        self.saw("an engine did not know that its office was over", !known);
        self.ledger.succeed();
        let next = Office::take(&mut self.cluster, self.now, node, &self.schedule.config)?;
        self.offices.push(next);
        let Plain { locks, tombstones, .. } = self.cluster.plain(node);
        if !self.ledger.holds().eq(locks.iter().map(|(&key, lock)| (key, lock.token))) {
            return Err(format!("what was applied is not what is taken over: {locks:?}"));
        }
        let clock = self.cluster.clock(node, self.now);
        let is_over = |lock: &PlainLock| lock.since + Nanos::from(lock.lease_secs) * SECOND <= clock;
        let seen = [!locks.is_empty(), !tombstones.is_empty(), locks.values().any(is_over)];
        self.saw("locks were taken over", seen[0]);
        self.saw("tombstones were taken over", seen[1]);
        self.saw("a lease was over before it was taken over", seen[2]);
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
                let is_commit = matches!(word, Word::Committed);
                let is_early = is_commit && which > 0;
                self.saw("a commit was told early", is_early);
                self.saw("a commit was told that was none", is_commit && !flight.survived);
                self.saw("an unknown batch was applied", matches!(word, Word::Unknown) && flight.survived);
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
            let office = &mut self.offices[number];
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

    /// How many of each kind of effect and answer came out, and how often something
    /// happened that is worth a test.
    pub(crate) fn seen(&self) -> Seen {
        let mut seen = self.seen.clone();
        for (kind, count) in self.offices.iter().flat_map(|office| &office.seen) {
            *seen.entry(kind).or_default() += count;
        }
        seen
    }

    fn compare(&self) -> Outcome {
        if !self.ledger.objections().is_empty() {
            return Err(self.ledger.objections().join("\n"));
        }
        self.offices.iter().try_for_each(Office::compare)
    }

    fn saw(&mut self, what: &'static str, happened: bool) {
        if happened {
            *self.seen.entry(what).or_default() += 1;
        }
    }

    fn tell(&mut self, what: &str) {
        let _ = writeln!(self.story, "  {what}");
    }
}
