//! What must be true of any lock service, checked from the outside.
//!
//! The ledger knows no rule of how the engine decides. It sees what clients
//! asked, which batches committed, and what clients were told; it applies the
//! committed effects to a table of its own, and objects when a promise is broken:
//!
//! - EXCL: while a client may be certain that it holds a key, nobody else gets it.
//! - FENCE: tokens are dense, grow in log order, and stay below the ceiling.
//! - LEASE: nothing expires before its lease is over, counted from the commit.
//! - LOST: a lock ends because its lease ran out, because it was released, or
//!   because nobody was told of it; never otherwise.
//! - FIFO: acquires of a key are granted in their order of arrival, and nobody gets
//!   a key in the moment between two holders.
//! - REPLY: one answer to each request, and a true one.

use std::collections::{BTreeMap, BTreeSet};

use ticketing_engine::{Answer, Config, ConnId, Effect, Input, Limits, Nanos, Request, SECOND, Seq};

use crate::machine::{effect, known, name};
use crate::model::Key;

const TOMBSTONE: Nanos = 600 * SECOND;

/// A request, as its answer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Acquire { owner: u64, key: Key },
    Release { token: u64, key: Key },
    Place { owner: u64, key: Key },
    Verify { owner: u64, key: Key },
}

/// An acquire that was not answered yet.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    conn: ConnId,
    owner: u64,
    key: Key,
    received: Nanos,
    wait_over: Nanos,
    number: u64,
    /// Number of the batch that was being collected.
    turn: Seq,
    /// Its connection had another one of the same owner and key open, so that
    /// an answer does not say which of them it is for.
    twin: bool,
}

/// What became of a token.
#[derive(Clone, Copy, Debug)]
struct Grant {
    key: Key,
    owner: u64,
    lease: Nanos,
    turn: Seq,
    handed_off: bool,
    committed: bool,
    told: bool,
    verified: bool,
    release_told: bool,
    ended: Option<End>,
    /// When a later grant of the same key committed.
    succeeded: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Expired,
    Released,
    /// Nobody had asked for it.
    GivenBack,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    token: u64,
    owner: u64,
    lease_over: Nanos,
}

/// Somebody who may rely on a lock until then.
#[derive(Clone, Copy, Debug)]
struct Certain {
    token: u64,
    until: Nanos,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    keys: &'static [Key],
    limits: Limits,
    ceiling: u64,
    last_token: u64,
    last_seq: Seq,
    last_tick: Nanos,
    retired: bool,

    /// The table, as the committed effects make it.
    held: BTreeMap<Key, Held>,
    /// When each burial committed.
    buried: BTreeMap<(u64, Key), Nanos>,
    ever_buried: BTreeSet<(u64, Key)>,
    in_flight: BTreeMap<Seq, Vec<Effect<'static>>>,

    grants: BTreeMap<u64, Grant>,
    certain: BTreeMap<Key, Certain>,
    /// Tokens that a client asked to release.
    asked_back: BTreeSet<(u64, Key)>,
    undelivered: BTreeSet<(u64, Key)>,
    /// Owners and keys of acquires whose connection closed before their answer.
    abandoned: BTreeSet<(u64, Key)>,

    arrivals: Vec<Arrival>,
    arrived: u64,
    /// Number of the last arrival that was granted, for each key.
    granted: BTreeMap<Key, u64>,

    open: BTreeMap<(ConnId, Asked), usize>,
    closed: BTreeSet<ConnId>,
    /// Answers that do not say what they answer.
    not_leader: BTreeMap<ConnId, usize>,
    close_told: BTreeMap<ConnId, usize>,

    objections: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(config: &Config, keys: &'static [Key]) -> Self {
        Self {
            keys,
            limits: config.limits,
            ceiling: config.token_ceiling,
            last_token: config.next_token.max(1) - 1,
            last_seq: 0,
            last_tick: 0,
            retired: false,
            held: BTreeMap::new(),
            buried: BTreeMap::new(),
            ever_buried: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            grants: BTreeMap::new(),
            certain: BTreeMap::new(),
            asked_back: BTreeSet::new(),
            undelivered: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            arrivals: Vec::new(),
            arrived: 0,
            granted: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: BTreeSet::new(),
            not_leader: BTreeMap::new(),
            close_told: BTreeMap::new(),
            objections: Vec::new(),
        }
    }

    /// Broken promises so far.
    pub(crate) fn objections(&self) -> &[String] {
        &self.objections
    }

    /// A token that some client was told for this key, the latest first.
    pub(crate) fn told_token(&self, key: Key) -> Option<u64> {
        self.grants.iter().rev().find(|(_, grant)| grant.key == key && grant.told).map(|(&token, _)| token)
    }

    /// Something is about to happen.
    pub(crate) fn see(&mut self, now: Nanos, input: Input<'static>) {
        match input {
            Input::Request(conn, request) => self.asked(conn, request),
            Input::Closed(conn) => {
                for gone in self.arrivals.extract_if(.., |arrival| arrival.conn == conn) {
                    self.abandoned.insert((gone.owner, gone.key));
                }
                self.open.retain(|(of, _), _| *of != conn);
                self.closed.insert(conn);
            }
            Input::Undelivered { token, key } => {
                self.undelivered.insert((token, key));
                self.no_longer_certain(token, key);
            }
            Input::Tick => self.last_tick = now,
            Input::Committed(seq) => self.commit(now, seq),
            Input::Refused(seq) | Input::Unknown(seq) => {
                self.in_flight.remove(&seq);
            }
            Input::TokenCeiling(ceiling) => self.ceiling = self.ceiling.max(ceiling),
            Input::Retire => self.retired = true,
            Input::Drain => {}
        }
    }

    fn asked(&mut self, conn: ConnId, request: Request<'static>) {
        let asked = match request {
            Request::Acquire { wait_secs, owner, key, received, .. } => {
                let twins = self.arrivals.iter_mut().filter(|other| other.is_from(conn, owner, key));
                let twin = twins.map(|other| other.twin = true).count() > 0;
                let wait_over = received + u64::from(wait_secs) * SECOND;
                self.arrived += 1;
                let (number, turn) = (self.arrived, self.last_seq + 1);
                self.arrivals.push(Arrival { conn, owner, key, received, wait_over, number, turn, twin });
                Asked::Acquire { owner, key }
            }
            Request::Release { token, key } => {
                if !self.retired {
                    self.asked_back.insert((token, key));
                    self.no_longer_certain(token, key);
                }
                Asked::Release { token, key }
            }
            Request::Place { owner, key } => Asked::Place { owner, key },
            Request::Verify { owner, key } => Asked::Verify { owner, key },
            Request::Cancel { .. } => return,
        };
        *self.open.entry((conn, asked)).or_default() += 1;
    }

    fn no_longer_certain(&mut self, token: u64, key: Key) {
        if self.certain.get(key).is_some_and(|certain| certain.token == token) {
            self.certain.remove(key);
        }
    }

    fn object(&mut self, objection: impl Into<String>) {
        self.objections.push(objection.into());
    }
}

/// The log.
impl Ledger {
    /// The engine wants this batch in the log.
    pub(crate) fn sealed<'a>(&mut self, seq: Seq, effects: impl Iterator<Item = Effect<'a>>) {
        demand(&mut self.objections, !self.retired, || format!("batch {seq} of an engine out of office"));
        demand(&mut self.objections, seq == self.last_seq + 1, || {
            format!("batch {seq} after batch {}", self.last_seq)
        });
        self.last_seq = seq;
        let effects = effects.map(|effect| self.own(effect)).collect::<Vec<_>>();
        for &effect in &effects {
            self.decided(seq, effect);
        }
        self.in_flight.insert(seq, effects);
    }

    /// Judges what can be judged before the commit, in log order.
    fn decided(&mut self, turn: Seq, decision: Effect<'static>) {
        match decision {
            Effect::Grant { key, owner, token, lease_secs } => {
                self.given(token, Grant::new(key, owner, lease_secs, turn, false));
            }
            Effect::HandOff { key, ended, expired, owner, token, lease_secs } => {
                self.ended(ended, key, expired);
                self.given(token, Grant::new(key, owner, lease_secs, turn, true));
            }
            Effect::Release { key, token } => self.ended(token, key, false),
            Effect::Expire { key, token } => self.ended(token, key, true),
            Effect::Bury { .. } | Effect::Forget { .. } => {}
        }
    }

    fn given(&mut self, token: u64, grant: Grant) {
        demand(&mut self.objections, self.last_token.checked_add(1) == Some(token), || {
            format!("FENCE: token {token} follows {}", self.last_token)
        });
        demand(&mut self.objections, token <= self.ceiling, || {
            format!("FENCE: token {token} is over the ceiling")
        });
        self.last_token = token;
        self.grants.insert(token, grant);
    }

    fn ended(&mut self, token: u64, key: Key, expired: bool) {
        let Some(grant) = self.grants.get_mut(&token) else {
            self.object(format!("token {token} ends, which never was given"));
            return;
        };
        let asked = self.asked_back.contains(&(token, key));
        grant.ended = Some(match (expired, asked) {
            (true, _) => End::Expired,
            (false, true) => End::Released,
            (false, false) => End::GivenBack,
        });
        let grant = *grant;
        if expired {
            let over = self.held.get(key).filter(|held| held.token == token).map(|held| held.lease_over);
            let tick = self.last_tick;
            demand(&mut self.objections, over.is_some_and(|over| over <= tick), || {
                format!("LEASE: {} {token} expired at {tick}, its lease is over at {over:?}", name(key))
            });
        } else if !asked {
            let nobody_was_told = !grant.told && self.abandoned.contains(&(grant.owner, key));
            demand(&mut self.objections, nobody_was_told || self.undelivered.contains(&(token, key)), || {
                format!("LOST: {} {token} ended without a reason", name(key))
            });
            demand(&mut self.objections, !grant.verified, || {
                format!("LOST: {} {token} was taken back after a verify was told of it", name(key))
            });
        }
    }

    fn commit(&mut self, now: Nanos, seq: Seq) {
        for effect in self.in_flight.remove(&seq).expect("a batch in flight") {
            self.apply(now, effect);
        }
        let (held, buried) = (self.held.len(), self.buried.len());
        let (most_held, most_buried) = (self.limits.held, self.limits.tombstones);
        demand(&mut self.objections, held <= most_held as usize, || {
            format!("{held} held locks, the limit is {most_held}")
        });
        demand(&mut self.objections, buried <= most_buried as usize, || {
            format!("{buried} tombstones, the limit is {most_buried}")
        });
    }

    /// Does what any node does with a committed effect: to apply it, or to object.
    fn apply(&mut self, now: Nanos, decision: Effect<'static>) {
        let fits = match decision {
            Effect::Grant { key, owner, token, .. } => {
                let free = !self.held.contains_key(key);
                self.take(now, key, owner, token);
                free
            }
            Effect::HandOff { key, ended, owner, token, .. } => {
                let was_held = self.held.remove(key).is_some_and(|held| held.token == ended);
                self.take(now, key, owner, token);
                was_held
            }
            Effect::Release { key, token } | Effect::Expire { key, token } => {
                self.held.remove(key).is_some_and(|held| held.token == token)
            }
            Effect::Bury { key, owner } => {
                let holds = self.held.get(key).is_some_and(|held| held.owner == owner);
                self.ever_buried.insert((owner, key));
                self.buried.insert((owner, key), now).is_none() && !holds
            }
            Effect::Forget { key, owner } => {
                let tick = self.last_tick;
                self.buried.remove(&(owner, key)).is_some_and(|since| since + TOMBSTONE <= tick)
            }
        };
        demand(&mut self.objections, fits, || {
            format!("this effect does not fit the table: {}", effect(decision))
        });
    }

    fn take(&mut self, now: Nanos, key: Key, owner: u64, token: u64) {
        demand(&mut self.objections, !self.buried.contains_key(&(owner, key)), || {
            format!("{} {token} granted to {owner}, of whom a verify said that it never would", name(key))
        });
        if let Some(certain) = self.certain.remove(key) {
            demand(&mut self.objections, certain.until <= now, || {
                format!(
                    "EXCL: {} {token} granted at {now}, the holder of {} is certain until {}",
                    name(key),
                    certain.token,
                    certain.until
                )
            });
        }
        for earlier in self.grants.range_mut(..token).map(|(_, grant)| grant) {
            if earlier.key == key && earlier.succeeded.is_none() {
                earlier.succeeded = Some(now);
            }
        }
        let grant = self.grants.get_mut(&token).expect("a sealed grant");
        grant.committed = true;
        self.held.insert(key, Held { token, owner, lease_over: now + grant.lease });
    }

    fn own(&self, effect: Effect<'_>) -> Effect<'static> {
        let own = |key| known(self.keys, key);
        match effect {
            Effect::Grant { key, owner, token, lease_secs } => {
                Effect::Grant { key: own(key), owner, token, lease_secs }
            }
            Effect::Release { key, token } => Effect::Release { key: own(key), token },
            Effect::Expire { key, token } => Effect::Expire { key: own(key), token },
            Effect::HandOff { key, ended, expired, owner, token, lease_secs } => {
                Effect::HandOff { key: own(key), ended, expired, owner, token, lease_secs }
            }
            Effect::Bury { key, owner } => Effect::Bury { key: own(key), owner },
            Effect::Forget { key, owner } => Effect::Forget { key: own(key), owner },
        }
    }
}

/// The answers.
impl Ledger {
    /// A client is told this.
    pub(crate) fn told(&mut self, now: Nanos, to: ConnId, answer: Answer<'_>) {
        if self.closed.contains(&to) {
            self.object(format!("REPLY: {to:?} is closed and was told {answer:?}"));
            return;
        }
        let own = |key| known(self.keys, key);
        match answer {
            Answer::Granted { token, owner, ends_ms, key } => {
                let key = own(key);
                let arrival = self.answered_acquire(to, owner, key);
                self.told_granted(now, (owner, key, token), ends_ms, arrival);
            }
            Answer::TimedOut { owner, key } => {
                if let Some(arrival) = self.answered_acquire(to, owner, own(key))
                    && !arrival.twin
                {
                    demand(
                        &mut self.objections,
                        arrival.wait_over <= now || arrival.wait_over == arrival.received,
                        || format!("LEASE: {} timed out for {owner} before its wait was over", name(key)),
                    );
                }
            }
            Answer::Busy { owner, key } => {
                self.answered_acquire(to, owner, own(key));
            }
            Answer::Released { token, key } => {
                let key = own(key);
                self.answered(to, Asked::Release { token, key });
                let truth = self.grants.get_mut(&token).filter(|grant| {
                    grant.key == key && grant.ended == Some(End::Released) && !grant.release_told
                });
                match truth {
                    Some(grant) => grant.release_told = true,
                    None => self.object(format!("REPLY: {} {token} is said to be released", name(key))),
                }
            }
            Answer::NotHeld { token, key } => {
                let key = own(key);
                self.answered(to, Asked::Release { token, key });
            }
            Answer::Place { owner, place, waiters, key } => {
                self.answered(to, Asked::Place { owner, key: own(key) });
                demand(&mut self.objections, place <= waiters, || {
                    format!("REPLY: place {place} of {waiters}")
                });
            }
            Answer::Verified { token, owner, key } => {
                let key = own(key);
                self.answered(to, Asked::Verify { owner, key });
                self.told_verified(owner, key, token);
            }
            Answer::VerifiedBusy { owner, key } => {
                let key = own(key);
                self.answered(to, Asked::Verify { owner, key });
                demand(&mut self.objections, self.ever_buried.contains(&(owner, key)), || {
                    format!("REPLY: {owner} never gets {}, and nobody wrote it down", name(key))
                });
            }
            Answer::NotLeader => *self.not_leader.entry(to).or_default() += 1,
            Answer::CloseUnknown | Answer::CloseOverloaded => *self.close_told.entry(to).or_default() += 1,
        }
    }

    fn told_granted(
        &mut self,
        now: Nanos,
        (owner, key, token): (u64, Key, u64),
        ends_ms: u32,
        arrival: Option<Arrival>,
    ) {
        let truth = self
            .grants
            .get_mut(&token)
            .filter(|grant| grant.committed && !grant.told && (grant.owner, grant.key) == (owner, key));
        let Some(grant) = truth else {
            self.object(format!("REPLY: {} {token} is said to be granted to {owner}", name(key)));
            return;
        };
        grant.told = true;
        let grant = *grant;
        let Some(arrival) = arrival.filter(|arrival| !arrival.twin) else { return };
        let before = self.granted.insert(key, arrival.number);
        demand(&mut self.objections, before.is_none_or(|before| before < arrival.number), || {
            format!("FIFO: {} {token} overtook one that came earlier", name(key))
        });
        demand(&mut self.objections, grant.handed_off || grant.turn == arrival.turn, || {
            format!("FIFO: {} was free while {owner}, who has {token} now, waited for it", name(key))
        });
        // What the client makes of it: a bound that can only be too early.
        let until = arrival.received + u64::from(ends_ms) * 1_000_000;
        let given_up = [&self.asked_back, &self.undelivered].iter().any(|set| set.contains(&(token, key)));
        if given_up || grant.ended == Some(End::Released) {
            return;
        }
        match grant.succeeded {
            Some(succeeded) => demand(&mut self.objections, until <= succeeded, || {
                format!("EXCL: told at {now} that {} {token} is held until {until}, but it is not", name(key))
            }),
            None => {
                self.certain.insert(key, Certain { token, until });
            }
        }
    }

    fn told_verified(&mut self, owner: u64, key: Key, token: u64) {
        let truth = self.grants.get_mut(&token).filter(|grant| {
            grant.committed && (grant.owner, grant.key) == (owner, key) && grant.ended != Some(End::GivenBack)
        });
        match truth {
            Some(grant) => grant.verified = true,
            None => self.object(format!("REPLY: {} {token} is said to be held by {owner}", name(key))),
        }
    }

    fn answered_acquire(&mut self, to: ConnId, owner: u64, key: Key) -> Option<Arrival> {
        self.answered(to, Asked::Acquire { owner, key });
        let index = self.arrivals.iter().position(|arrival| arrival.is_from(to, owner, key))?;
        Some(self.arrivals.remove(index))
    }

    fn answered(&mut self, to: ConnId, asked: Asked) {
        match self.open.get_mut(&(to, asked)) {
            Some(open) if *open > 0 => *open -= 1,
            _ => self.object(format!("REPLY: {to:?} did not ask {asked:?}, or was answered before")),
        }
    }

    /// Nothing more will happen: every request must have been answered by now.
    pub(crate) fn finish(&mut self) {
        let mut open = BTreeMap::<ConnId, usize>::new();
        for (&(conn, _), &count) in &self.open {
            *open.entry(conn).or_default() += count;
        }
        for (conn, open) in open {
            let closings = self.close_told.get(&conn).copied().unwrap_or(0);
            let answered = self.not_leader.get(&conn).copied().unwrap_or(0) + closings;
            demand(&mut self.objections, open == answered, || {
                format!("REPLY: {conn:?} has {open} requests without a word, and {answered} words to none")
            });
        }
    }

    /// Locks and tombstones, as the committed effects leave them.
    pub(crate) fn table_is_empty(&self) -> bool {
        self.held.is_empty() && self.buried.is_empty()
    }
}

impl Arrival {
    fn is_from(&self, conn: ConnId, owner: u64, key: Key) -> bool {
        (self.conn, self.owner, self.key) == (conn, owner, key)
    }
}

impl Grant {
    fn new(key: Key, owner: u64, lease_secs: u8, turn: Seq, handed_off: bool) -> Self {
        Self {
            key,
            owner,
            lease: u64::from(lease_secs) * SECOND,
            turn,
            handed_off,
            committed: false,
            told: false,
            verified: false,
            release_told: false,
            ended: None,
            succeeded: None,
        }
    }
}

fn demand(objections: &mut Vec<String>, promise: bool, objection: impl FnOnce() -> String) {
    if !promise {
        objections.push(objection());
    }
}
