//! The lock engine as a specification that runs: slow, and as plain as possible.
//!
//! One list of waiters, one table of locks, one list of tombstones, and every
//! question is answered by looking at all of it. It was written from the rules,
//! not from the engine, so that the two agree only where both are right.
//!
//! The table is decided ahead: it shows what will be true once everything that
//! was proposed has committed. What is decided between two seals is a turn. Its
//! effects leave together as a batch, and an answer that is a definite word
//! about the table (a gated one) waits for that batch to commit.
mod restore;
mod turns;

use std::collections::{BTreeMap, BTreeSet};

use ticketing_engine::{Answer, Config, ConnId, Effect, Input, Limits, Nanos, Request, SECOND, Seq};

pub(crate) use self::turns::Said;
use self::turns::{Leaves, Turns};

/// Tests name keys by literals.
pub(crate) type Key = &'static [u8];

const TOMBSTONE_SECS: u16 = 600;

/// When something is due. The order of the fields is the order of firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    due: Nanos,
    kind: Kind,
    secs: u16,
    /// The how-manieth timer it is.
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Wait,
    Lease,
    Tombstone,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    owner: u64,
    token: u64,
    /// Set when the grant commits.
    lease: Option<Timer>,
    /// A verify was told this token: somebody may rely on it, whatever became of
    /// the connection that asked for the lock.
    verified: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    conn: ConnId,
    owner: u64,
    key: Key,
    lease_secs: u8,
    received: Nanos,
    wait: Timer,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    owner: u64,
    key: Key,
    by: Option<ConnId>,
    /// Set when the burial commits.
    age: Option<Timer>,
}

#[derive(Debug)]
pub(crate) struct Model {
    limits: Limits,
    /// `None`: the last token of all was given out.
    next_token: Option<u64>,
    locks: BTreeMap<Key, Lock>,
    /// All waiters of all keys, in order of arrival.
    waiters: Vec<Waiter>,
    tombstones: Vec<Tombstone>,
    turns: Turns,
    closed: BTreeSet<ConnId>,
    /// The latest receipt of an acquire that queued.
    latest_received: Nanos,
    timers_set: u64,
    drained: bool,
    retired: bool,
}

impl Model {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            limits: config.limits,
            next_token: Some(config.next_token.max(1)),
            locks: BTreeMap::new(),
            waiters: Vec::new(),
            tombstones: Vec::new(),
            turns: Turns::new(),
            closed: BTreeSet::new(),
            latest_received: 0,
            timers_set: 0,
            drained: false,
            retired: false,
        }
    }

    pub(crate) fn handle(&mut self, now: Nanos, input: Input<'static>) {
        match input {
            Input::Request(conn, request) => self.request(now, conn, request),
            Input::Leaving(conn) => self.waiters.retain(|waiter| waiter.conn != conn),
            Input::Closed(conn) => self.close(now, conn),
            Input::Undelivered { token, key } => self.undelivered(now, token, key),
            Input::Tick => self.tick(now),
            Input::Committed(seq) => self.committed(now, seq),
            Input::Refused(seq) => self.lost(seq, refusal),
            Input::Unknown(seq) => self.lost(seq, |_, _| Answer::CloseUnknown),
            Input::Drain => self.drain_server(),
            Input::Retire => self.retire(),
        }
    }

    pub(crate) fn seal(&mut self) -> Option<(Seq, Vec<Effect<'static>>)> {
        self.turns.seal()
    }

    pub(crate) fn drain(&mut self) -> Vec<Said> {
        self.turns.drain(&self.closed)
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        if self.retired { None } else { self.earliest_timer().map(|timer| timer.due) }
    }

    /// `None`: exhausted.
    pub(crate) const fn next_token(&self) -> Option<u64> {
        self.next_token
    }

    /// The token under which the key is held, as far as it was decided.
    pub(crate) fn current_token(&self, key: Key) -> Option<u64> {
        self.locks.get(key).map(|lock| lock.token)
    }

    pub(crate) fn held(&self) -> usize {
        self.locks.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn buried(&self) -> usize {
        self.tombstones.len()
    }

    pub(crate) fn pending(&self) -> usize {
        self.turns.pending()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_idle()
    }
}

/// Requests.
impl Model {
    fn request(&mut self, now: Nanos, conn: ConnId, request: Request<'static>) {
        match request {
            Request::Acquire { wait_secs, lease_secs, owner, key, received } => {
                self.acquire(now, conn, (owner, key), (wait_secs, lease_secs, received));
            }
            Request::Release { token, key } => self.release(now, conn, token, key),
            Request::Cancel { owner, key } => {
                self.dismiss(|waiter| waiter.conn == conn && waiter.owner == owner && waiter.key == key);
            }
            Request::Place { owner, key } => self.place(conn, owner, key),
            Request::Verify { owner, key } => self.verify(conn, owner, key),
        }
    }

    fn acquire(
        &mut self,
        now: Nanos,
        conn: ConnId,
        (owner, key): (u64, Key),
        (wait_secs, lease_secs, received): (u8, u8, Nanos),
    ) {
        let busy = Answer::Busy { owner, key };
        let timed_out = Answer::TimedOut { owner, key };
        let held = self.locks.contains_key(key);

        if self.retired || self.is_buried(owner, key) {
            self.say_in_turn(conn, key, busy);
        } else if held && wait_secs == 0 {
            self.say_in_turn(conn, key, timed_out);
        } else if self.drained || self.out_of_tokens() || !self.has_room(conn, owner, key) {
            self.say_in_turn(conn, key, busy);
        } else if !held {
            let token = self.take_token();
            self.effect(Effect::Grant { key, owner, token, lease_secs });
            self.grant(now, conn, (owner, key, token), (received, lease_secs));
        } else if received.saturating_add(u64::from(wait_secs) * SECOND) <= now {
            self.say_in_turn(conn, key, timed_out);
        } else {
            // Two connections may hand in their frames in another order than they
            // came; a wait is then counted from the later one, never from an earlier.
            self.latest_received = self.latest_received.max(received);
            let wait = self.timer(self.latest_received, Kind::Wait, u16::from(wait_secs));
            self.waiters.push(Waiter { conn, owner, key, lease_secs, received, wait });
        }
    }

    fn release(&mut self, now: Nanos, conn: ConnId, token: u64, key: Key) {
        if self.retired {
            self.say(conn, key, Answer::NotLeader);
        } else if self.current_token(key) == Some(token) {
            self.say_once_committed(conn, key, Answer::Released { token, key });
            self.end(now, key, false);
        } else {
            self.say_once_committed(conn, key, Answer::NotHeld { token, key });
        }
    }

    fn place(&mut self, conn: ConnId, owner: u64, key: Key) {
        let place = self.queue(key).position(|waiter| waiter.owner == owner).map_or(0, |index| index + 1);
        let place = u32::try_from(place).unwrap();
        let waiters = u32::try_from(self.queue(key).count()).unwrap();
        self.say_in_turn(conn, key, Answer::Place { owner, place, waiters, key });
    }

    fn verify(&mut self, conn: ConnId, owner: u64, key: Key) {
        if self.retired {
            self.say(conn, key, Answer::NotLeader);
            return;
        }
        if let Some(lock) = self.locks.get_mut(key)
            && lock.owner == owner
        {
            lock.verified = true;
            let token = lock.token;
            self.say_once_committed(conn, key, Answer::Verified { token, owner, key });
            return;
        }
        self.dismiss(|waiter| waiter.owner == owner && waiter.key == key);
        if !self.is_buried(owner, key) {
            // At least one, and no more than a third of what is left to all others.
            let free =
                self.limits.tombstones as usize - self.tombstones.len().min(self.limits.tombstones as usize);
            let share = self.tombstones.iter().filter(|tomb| tomb.by == Some(conn)).count();
            if free == 0 || share > 0 && 3 * (share + 1) > free {
                self.say(conn, key, Answer::CloseOverloaded);
                return;
            }
            self.tombstones.push(Tombstone { owner, key, by: Some(conn), age: None });
            self.effect(Effect::Bury { key, owner });
        }
        self.say_once_committed(conn, key, Answer::VerifiedBusy { owner, key });
    }
}

/// Everything else that happens.
impl Model {
    fn close(&mut self, now: Nanos, conn: ConnId) {
        self.closed.insert(conn);
        self.waiters.retain(|waiter| waiter.conn != conn);
        // A grant that committed, but whose answer was not drained yet, is as
        // undelivered as one in flight.
        self.give_back(now, self.turns.undelivered(&self.closed));
    }

    fn undelivered(&mut self, now: Nanos, token: u64, key: Key) {
        self.give_back(now, vec![(token, key)]);
    }

    /// Frees locks whose grant reached nobody. One that a verify was told of is
    /// relied upon and stays.
    fn give_back(&mut self, now: Nanos, grants: Vec<(u64, Key)>) {
        for (token, key) in grants {
            let unknown = self.locks.get(key).is_some_and(|lock| lock.token == token && !lock.verified);
            if unknown && !self.retired {
                self.end(now, key, false);
            }
        }
    }

    fn tick(&mut self, now: Nanos) {
        if self.retired {
            return;
        }
        for _ in 0..self.limits.timers_per_tick {
            let Some(timer) = self.earliest_timer().filter(|timer| timer.due <= now) else { return };
            match timer.kind {
                Kind::Wait => {
                    let index = self.waiters.iter().position(|waiter| waiter.wait == timer).unwrap();
                    let waiter = self.waiters.remove(index);
                    self.say(
                        waiter.conn,
                        waiter.key,
                        Answer::TimedOut { owner: waiter.owner, key: waiter.key },
                    );
                }
                Kind::Lease => {
                    let (&key, _) = self.locks.iter().find(|(_, lock)| lock.lease == Some(timer)).unwrap();
                    self.end(now, key, true);
                }
                Kind::Tombstone => {
                    let index = self.tombstones.iter().position(|tomb| tomb.age == Some(timer)).unwrap();
                    let Tombstone { owner, key, .. } = self.tombstones.remove(index);
                    self.effect(Effect::Forget { key, owner });
                }
            }
        }
    }

    fn committed(&mut self, now: Nanos, seq: Seq) {
        self.turns.commit(seq);
        while let Some(effects) = self.turns.settle_next() {
            if !self.retired {
                self.begin(now, effects);
            }
        }
    }

    fn begin(&mut self, now: Nanos, effects: Vec<Effect<'static>>) {
        for effect in effects {
            match effect {
                Effect::Grant { key, token, lease_secs, .. }
                | Effect::HandOff { key, token, lease_secs, .. } => {
                    let lease = self.timer(now, Kind::Lease, u16::from(lease_secs));
                    if let Some(lock) = self.locks.get_mut(key)
                        && lock.token == token
                    {
                        lock.lease = Some(lease);
                    }
                }
                Effect::Bury { key, owner } => {
                    let age = self.timer(now, Kind::Tombstone, TOMBSTONE_SECS);
                    let unborn = |tomb: &&mut Tombstone| (tomb.owner, tomb.key) == (owner, key);
                    self.tombstones.iter_mut().find(unborn).unwrap().age = Some(age);
                }
                Effect::Release { .. } | Effect::Expire { .. } | Effect::Forget { .. } => {}
            }
        }
        self.give_back(now, self.turns.undelivered(&self.closed));
    }

    /// What was decided later stands on this batch: there is no office without it.
    fn lost(&mut self, seq: Seq, word: impl Fn(Key, Answer<'static>) -> Answer<'static>) {
        if self.turns.lose(seq, word) {
            self.retire();
        }
    }

    fn drain_server(&mut self) {
        if !self.drained && !self.retired {
            self.drained = true;
            self.refuse_waiters();
        }
    }

    fn retire(&mut self) {
        if self.retired {
            return;
        }
        self.retired = true;
        self.turns.abandon(refusal);
        self.refuse_waiters();
    }
}

/// The parts that those are made of.
impl Model {
    /// The lock of this key ends, and in the same step its next waiter has it.
    fn end(&mut self, now: Nanos, key: Key, expired: bool) {
        let ended = self.locks.remove(key).unwrap().token;
        if self.out_of_tokens() {
            // All of them, also those whose wait is over.
            self.dismiss(|waiter| waiter.key == key);
        }
        while let Some(index) = self.waiters.iter().position(|waiter| waiter.key == key) {
            let Waiter { conn, owner, lease_secs, received, wait, .. } = self.waiters.remove(index);
            if wait.due <= now {
                self.say(conn, key, Answer::TimedOut { owner, key });
            } else {
                let token = self.take_token();
                self.effect(Effect::HandOff { key, ended, expired, owner, token, lease_secs });
                self.grant(now, conn, (owner, key, token), (received, lease_secs));
                return;
            }
        }
        self.effect(if expired {
            Effect::Expire { key, token: ended }
        } else {
            Effect::Release { key, token: ended }
        });
    }

    fn grant(
        &mut self,
        now: Nanos,
        conn: ConnId,
        (owner, key, token): (u64, Key, u64),
        (received, lease_secs): (Nanos, u8),
    ) {
        self.locks.insert(key, Lock { owner, token, lease: None, verified: false });
        let waited_ms = (now - received) / 1_000_000;
        let ends_ms = u32::try_from(waited_ms + u64::from(lease_secs) * 1_000).unwrap_or(u32::MAX);
        self.say_once_committed(conn, key, Answer::Granted { token, owner, ends_ms, key });
    }

    /// Takes waiters out of their queues, each with a refusal.
    fn dismiss(&mut self, who: impl Fn(&Waiter) -> bool) {
        let (leaving, staying) = self.waiters.iter().partition::<Vec<_>, _>(|waiter| who(waiter));
        self.waiters = staying;
        for Waiter { conn, owner, key, .. } in leaving {
            self.say(conn, key, Answer::Busy { owner, key });
        }
    }

    fn refuse_waiters(&mut self) {
        let sweep = self.turns.begin_sweep();
        self.dismiss(|_| true);
        self.turns.end_sweep(sweep);
    }

    fn queue(&self, key: Key) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(move |waiter| waiter.key == key)
    }

    fn is_buried(&self, owner: u64, key: Key) -> bool {
        self.tombstones.iter().any(|tomb| tomb.owner == owner && tomb.key == key)
    }

    fn has_room(&self, conn: ConnId, owner: u64, key: Key) -> bool {
        let within = |count: usize, limit: u32| count < limit as usize;
        let limits = &self.limits;
        within(self.pending_acquires(conn), limits.in_flight_per_connection)
            && if self.locks.contains_key(key) {
                within(self.queue(key).count(), limits.waiters_per_key)
                    && within(self.waiters.len(), limits.waiters)
                    && within(
                        self.queue(key).filter(|waiter| waiter.owner == owner).count(),
                        Limits::SAME_OWNER,
                    )
            } else {
                within(self.locks.len(), limits.held)
            }
    }

    /// Acquires of a connection that wait, or whose grant has not committed yet.
    fn pending_acquires(&self, conn: ConnId) -> usize {
        let queued = self.waiters.iter().filter(|waiter| waiter.conn == conn).count();
        queued + self.turns.grants_in_flight(conn)
    }

    const fn out_of_tokens(&self) -> bool {
        self.next_token.is_none()
    }

    fn take_token(&mut self) -> u64 {
        let token = self.next_token.unwrap();
        self.next_token = token.checked_add(1);
        token
    }

    fn timer(&mut self, from: Nanos, kind: Kind, secs: u16) -> Timer {
        self.timers_set += 1;
        Timer { due: from.saturating_add(u64::from(secs) * SECOND), kind, secs, serial: self.timers_set }
    }

    fn earliest_timer(&self) -> Option<Timer> {
        let waits = self.waiters.iter().map(|waiter| waiter.wait);
        let leases = self.locks.values().filter_map(|lock| lock.lease);
        let ages = self.tombstones.iter().filter_map(|tomb| tomb.age);
        waits.chain(leases).chain(ages).min()
    }

    fn effect(&mut self, effect: Effect<'static>) {
        self.turns.effect(effect);
    }

    /// Says something that nobody's commit can make untrue.
    fn say(&mut self, to: ConnId, key: Key, answer: Answer<'static>) {
        self.turns.say(to, key, answer, Leaves::AtOnce);
    }

    fn say_once_committed(&mut self, to: ConnId, key: Key, answer: Answer<'static>) {
        self.turns.say(to, key, answer, Leaves::OnceCommitted);
    }

    /// Says at once what became of a request, but for one thing: what a connection
    /// asked about a key before is answered before.
    fn say_in_turn(&mut self, to: ConnId, key: Key, answer: Answer<'static>) {
        let leaves = if self.retired { Leaves::AtOnce } else { Leaves::WithTurn };
        self.turns.say(to, key, answer, leaves);
    }
}

/// What a gated answer becomes when its batch certainly never was appended.
fn refusal(key: Key, answer: Answer<'static>) -> Answer<'static> {
    match answer {
        Answer::Granted { owner, .. } => Answer::Busy { owner, key },
        _ => Answer::NotLeader,
    }
}
