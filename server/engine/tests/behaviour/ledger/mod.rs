//! What must be true of any lock service, checked from the outside.
//!
//! The ledger knows no rule of how the engine decides. It sees what clients
//! asked, which batches committed, and what clients were told; it applies the
//! committed effects to a table of its own, and objects when a promise is broken:
//!
//! - EXCL: while a client may be certain that it holds a key, nobody else gets it.
//! - FENCE: tokens are dense and grow in log order.
//! - LEASE: nothing expires before its lease is over, counted from the commit, and
//!   nothing is still held at a tick after that, counted on the node in office.
//! - LOST: a lock ends because its lease ran out, because it was released, or
//!   because nobody was told of it; never otherwise.
//! - ORPH: and if nobody can ever be told of it, it does not wait for its lease.
//! - FIFO: acquires of a key are granted in their order of arrival, and nobody gets
//!   a key in the moment between two holders.
//! - REPLY: one answer to each request, and a true one.
//!
//! One engine is in office at a time. Another one may follow it, and then only what
//! was applied of the first is true, whatever that one goes on to decide. A lock
//! whose grant is older than the office ends by its release or its lease alone, as
//! nobody there knows who was told of it.

mod answers;
mod log;

use std::collections::{BTreeMap, BTreeSet};

use ticketing_engine::{Config, ConnId, Effect, Input, Nanos, Request, SECOND, Seq};

use crate::model::Key;

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
    /// The batch that was being collected.
    turn: Turn,
    /// Its connection had another one of the same owner and key open, so that
    /// an answer does not say which of them it is for.
    twin: bool,
}

/// An office, and the number of a batch in it.
type Turn = (usize, Seq);

/// What became of a token.
#[derive(Clone, Copy, Debug)]
struct Grant {
    key: Key,
    owner: u64,
    lease: Nanos,
    turn: Turn,
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
    config: Config,
    /// Number of the engine in office.
    office: usize,
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
    /// Tokens that a client asked the engine in office to release.
    asked_back: BTreeSet<(u64, Key)>,
    /// Tokens that a client asked anybody to release: it does not count on them.
    given_up: BTreeSet<(u64, Key)>,
    undelivered: BTreeSet<(u64, Key)>,
    /// Owners and keys of acquires whose connection closed before their answer, and when.
    abandoned: BTreeMap<(u64, Key), Nanos>,
    /// Owners and keys that somebody asked about.
    verifies: BTreeSet<(u64, Key)>,

    arrivals: Vec<Arrival>,
    arrived: u64,
    /// The arrivals that were granted, by key and token.
    granted: BTreeMap<(Key, u64), u64>,

    open: BTreeMap<(ConnId, Asked), usize>,
    closed: BTreeSet<ConnId>,
    /// Those whose waiters were to leave without an answer.
    left: BTreeSet<ConnId>,
    /// Answers that do not say what they answer.
    not_leader: BTreeMap<ConnId, usize>,
    close_told: BTreeMap<ConnId, usize>,

    objections: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(config: &Config, keys: &'static [Key]) -> Self {
        Self {
            keys,
            config: *config,
            office: 0,
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
            given_up: BTreeSet::new(),
            undelivered: BTreeSet::new(),
            abandoned: BTreeMap::new(),
            verifies: BTreeSet::new(),
            arrivals: Vec::new(),
            arrived: 0,
            granted: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: BTreeSet::new(),
            left: BTreeSet::new(),
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

    /// What is held as of what was applied, and under which tokens.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (Key, u64)> {
        self.held.iter().map(|(&key, held)| (key, held.token))
    }

    /// The lease of this token is over, as the node in office counts it from this moment.
    pub(crate) fn is_due(&mut self, token: u64, since: Nanos) {
        let Some(grant) = self.grants.get(&token) else { return };
        let is_late = grant.ended.is_none() && since + grant.lease <= self.last_tick;
        demand(&mut self.objections, !is_late, || {
            format!("LEASE: {token} is over since {}, and there was a tick since", since + grant.lease)
        });
    }

    /// Whether this token was given by an engine before the one in office.
    pub(crate) fn is_of_an_earlier_office(&self, token: u64) -> bool {
        self.grants.get(&token).is_some_and(|grant| grant.turn.0 < self.office)
    }

    /// Something is about to happen to this engine, the one in office or an earlier one.
    pub(crate) fn see(&mut self, now: Nanos, office: usize, input: Input<'static>) {
        let in_office = office == self.office;
        match input {
            Input::Request(conn, request) => self.asked(conn, request, in_office),
            // Which of its acquires were decided is for the model to say.
            Input::Leaving(conn) => {
                for arrival in self.arrivals.iter().filter(|arrival| arrival.conn == conn) {
                    self.abandoned.insert((arrival.owner, arrival.key), now);
                }
                self.left.insert(conn);
            }
            Input::Closed(conn) => {
                for gone in self.arrivals.extract_if(.., |arrival| arrival.conn == conn) {
                    self.abandoned.insert((gone.owner, gone.key), now);
                }
                self.open.retain(|(of, _), _| *of != conn);
                self.closed.insert(conn);
            }
            Input::Undelivered { token, key } => {
                if in_office {
                    self.undelivered.insert((token, key));
                }
                self.no_longer_certain(token, key);
            }
            Input::Tick if in_office => self.last_tick = now,
            Input::Refused(seq) | Input::Unknown(seq) if in_office => {
                self.retired |= self.in_flight.contains_key(&seq);
            }
            Input::Retire if in_office => self.retired = true,
            _ => {}
        }
    }

    fn asked(&mut self, conn: ConnId, request: Request<'static>, in_office: bool) {
        let asked = match request {
            Request::Acquire { wait_secs, owner, key, received, .. } => {
                let twins = self.arrivals.iter_mut().filter(|other| other.is_from(conn, owner, key));
                let twin = twins.map(|other| other.twin = true).count() > 0;
                let wait_over = received + u64::from(wait_secs) * SECOND;
                self.arrived += 1;
                let (number, turn) = (self.arrived, (self.office, self.last_seq + 1));
                self.arrivals.push(Arrival { conn, owner, key, received, wait_over, number, turn, twin });
                Asked::Acquire { owner, key }
            }
            Request::Release { token, key } => {
                if in_office && !self.retired {
                    self.asked_back.insert((token, key));
                }
                self.no_longer_certain(token, key);
                Asked::Release { token, key }
            }
            Request::Place { owner, key } => Asked::Place { owner, key },
            Request::Verify { owner, key } => {
                self.verifies.insert((owner, key));
                Asked::Verify { owner, key }
            }
            Request::Cancel { .. } => return,
        };
        *self.open.entry((conn, asked)).or_default() += 1;
    }

    fn no_longer_certain(&mut self, token: u64, key: Key) {
        self.given_up.insert((token, key));
        if self.certain.get(key).is_some_and(|certain| certain.token == token) {
            self.certain.remove(key);
        }
    }

    fn object(&mut self, objection: impl Into<String>) {
        self.objections.push(objection.into());
    }
}

impl Arrival {
    fn is_from(&self, conn: ConnId, owner: u64, key: Key) -> bool {
        (self.conn, self.owner, self.key) == (conn, owner, key)
    }
}

impl Grant {
    fn new(key: Key, owner: u64, lease_secs: u8, turn: Turn, handed_off: bool) -> Self {
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
