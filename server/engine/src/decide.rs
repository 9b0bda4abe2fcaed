//! What a request is answered, against the table as it will be when everything
//! proposed so far has been applied.

use crate::engine::{Engine, Office};
use crate::turns::Then;
use crate::waiters::Newcomer;
use crate::{Answer, ConnId, Effect, Limits, Nanos, Request, SECOND};

impl Engine {
    pub(crate) fn request(&mut self, now: Nanos, connection: ConnId, request: Request<'_>) {
        match request {
            Request::Acquire { wait_secs, lease_secs, owner, key, received } => {
                let newcomer = Newcomer { connection, owner, received, wait_secs, lease_secs };
                self.acquire(now, newcomer, key);
            }
            Request::Release { .. } | Request::Verify { .. } if self.office == Office::Retired => {
                self.answer(connection, Answer::NotLeader, Then::Free);
            }
            Request::Release { token, key } => self.release(now, connection, token, key),
            Request::Cancel { owner, key } => self.cancel(connection, owner, key),
            Request::Place { owner, key } => self.place(connection, owner, key),
            Request::Verify { owner, key } => self.verify(connection, owner, key),
        }
    }

    fn acquire(&mut self, now: Nanos, newcomer: Newcomer, key: &[u8]) {
        let Newcomer { connection, owner, received, wait_secs, lease_secs } = newcomer;
        if self.office == Office::Retired || self.tombstones.contains(owner, key) {
            return self.busy(connection, owner, key);
        }
        let held = self.locks.find(key);
        if held.is_some() && wait_secs == 0 {
            return self.timed_out(connection, owner, key);
        }
        let in_flight = self.connections.get(connection).map_or(0, |connection| connection.in_flight);
        if self.office == Office::Draining || in_flight >= self.limits.in_flight_per_connection {
            return self.busy(connection, owner, key);
        }
        if let Some(lock) = held {
            if self.is_queue_full(lock, owner) {
                self.busy(connection, owner, key);
            } else if received.saturating_add(u64::from(wait_secs) * SECOND) <= now {
                self.timed_out(connection, owner, key);
            } else {
                self.join(lock, newcomer);
            }
            return;
        }
        let has_room = self.locks.len() < self.limits.held as usize;
        let Some(token) = has_room.then(|| self.take_token()).flatten() else {
            return self.busy(connection, owner, key);
        };
        let lock = self.locks.insert(key, owner, token);
        self.connections.entry(connection).in_flight += 1;
        self.stats.granted += 1;
        self.turns.propose(Effect::Grant { key, owner, token, lease_secs });
        let ends_ms = ends_ms(received, now, lease_secs);
        let answer = Answer::Granted { token, owner, ends_ms, key };
        self.answer(connection, answer, Then::Lease { lock, secs: lease_secs });
    }

    fn is_queue_full(&self, lock: u32, owner: u64) -> bool {
        let of_key = self.locks.get(lock).map_or(0, super::locks::Lock::waiters);
        self.is_out_of_tokens()
            || of_key >= self.limits.waiters_per_key
            || self.waiters.len() >= self.limits.waiters as usize
            || self.waiters.of_owner(owner, lock).nth(Limits::SAME_OWNER as usize - 1).is_some()
    }

    fn join(&mut self, lock: u32, newcomer: Newcomer) {
        let Some(held) = self.locks.get_mut(lock) else { return };
        let queue = held.queue.get_or_insert_default();
        self.waiters.insert(newcomer, lock, &mut self.connections, |id| queue.push(id));
    }

    fn release(&mut self, now: Nanos, connection: ConnId, token: u64, key: &[u8]) {
        let is_current = |&lock: &u32| {
            fault!(ReleasesUnderAnyToken) || self.locks.get(lock).is_some_and(|it| it.token == token)
        };
        match self.locks.find(key).filter(is_current) {
            Some(lock) => {
                self.stats.released += 1;
                self.answer(connection, Answer::Released { token, key }, Then::Gated);
                self.pass_on(now, lock, false);
            }
            None if fault!(ConfirmsEveryRelease) => {
                self.answer(connection, Answer::Released { token, key }, Then::Gated);
            }
            None => {
                self.stats.not_held += 1;
                self.answer(connection, Answer::NotHeld { token, key }, Then::Gated);
            }
        }
    }

    fn cancel(&mut self, connection: ConnId, owner: u64, key: &[u8]) {
        if let Some(lock) = self.locks.find(key) {
            self.refuse_owner(lock, owner, Some(connection));
        }
    }

    fn place(&mut self, connection: ConnId, owner: u64, key: &[u8]) {
        let lock = self.locks.find(key);
        let queue = lock.and_then(|lock| self.locks.get(lock)).and_then(|lock| lock.queue.as_deref());
        let (place, waiters) = match (lock, queue) {
            (Some(lock), Some(queue)) => {
                let position = self.waiters.of_owner(owner, lock).map(|(_, waiter)| waiter.position).min();
                (position.map_or(0, |position| queue.ahead_of(position) + 1), queue.len())
            }
            _ => (0, 0),
        };
        let answer = Answer::Place { owner, place, waiters, key };
        self.turns.answer_at_once(&mut self.connections, connection, answer);
    }

    fn verify(&mut self, connection: ConnId, owner: u64, key: &[u8]) {
        let held = self.locks.find(key);
        let lock = held.and_then(|lock| self.locks.get_mut(lock));
        if let Some(lock) = lock.filter(|lock| lock.owner == owner) {
            lock.verified = !fault!(ForgetsWhatItVerified);
            let answer = Answer::Verified { token: lock.token, owner, key };
            return self.answer(connection, answer, Then::Gated);
        }
        if let Some(lock) = held
            && !fault!(VerifyLeavesTheWaiter)
        {
            self.refuse_owner(lock, owner, None);
        }
        let refusal = Answer::VerifiedBusy { owner, key };
        if self.tombstones.contains(owner, key) || fault!(VerifyLeavesNoTombstone) {
            self.answer(connection, refusal, Then::Gated);
        } else if !self.tombstones.has_room(self.limits.tombstones, connection) {
            self.answer(connection, Answer::CloseOverloaded, Then::Free);
        } else {
            self.tombstones.bury(owner, key, connection);
            self.turns.propose(Effect::Bury { key, owner });
            self.answer(connection, refusal, Then::Tombstone);
        }
    }

    /// Takes every waiter of an owner, on one connection or on all, out of a queue.
    fn refuse_owner(&mut self, lock: u32, owner: u64, only: Option<ConnId>) {
        let wanted = |connection| only.is_none_or(|only| only == connection);
        let mut found = self
            .waiters
            .of_owner(owner, lock)
            .filter(|(_, waiter)| wanted(waiter.connection))
            .map(|(id, waiter)| (waiter.position, id))
            .collect::<Vec<_>>();
        found.sort_unstable();
        for (_, id) in found {
            self.refuse_waiter(id);
        }
    }

    fn busy(&mut self, connection: ConnId, owner: u64, key: &[u8]) {
        self.stats.busy += 1;
        self.turns.answer_at_once(&mut self.connections, connection, Answer::Busy { owner, key });
    }

    fn timed_out(&mut self, connection: ConnId, owner: u64, key: &[u8]) {
        self.stats.timed_out += 1;
        self.turns.answer_at_once(&mut self.connections, connection, Answer::TimedOut { owner, key });
    }

    fn answer(&mut self, connection: ConnId, answer: Answer<'_>, then: Then) {
        self.turns.answer(&mut self.connections, connection, answer, then);
    }
}

/// From the receipt of an acquire to its proposal, which is `now`, plus the lease.
pub(crate) fn ends_ms(received: Nanos, now: Nanos, lease_secs: u8) -> u32 {
    let waited_ms = now.saturating_sub(received) / 1_000_000;
    let lease_ms = u32::from(lease_secs) * if fault!(TellsTwiceTheLease) { 2000 } else { 1000 };
    u32::try_from(waited_ms).unwrap_or(u32::MAX).saturating_add(lease_ms)
}
