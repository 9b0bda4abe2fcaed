//! How a lock goes from one owner to the next, and how waiters leave without it.

use crate::decide::ends_ms;
use crate::engine::{Engine, Office, refused};
use crate::locks::Locks;
use crate::tombstones::Tombstones;
use crate::turns::Then;
use crate::waiters::{Waiter, Waiters};
use crate::{Answer, ConnId, Effect, Nanos, Seq};

impl Engine {
    /// Ends the grant of a held key. With a waiter, end and next grant are one
    /// effect: there is no moment at which the key is free.
    pub(crate) fn pass_on(&mut self, now: Nanos, id: u32, expired: bool) {
        if self.is_out_of_tokens() {
            self.refuse_queue(id);
        }
        while let Some(head) = self.locks.get(id).and_then(super::locks::Lock::head) {
            let Some(waiter) = self.leave(head) else { break };
            if waiter.deadline <= now {
                self.wait_ran_out(&waiter);
                continue;
            }
            let (Some(token), Some(lock)) = (self.take_token(), self.locks.get_mut(id)) else { break };
            let ended = std::mem::replace(&mut lock.token, token);
            lock.owner = waiter.owner;
            lock.verified = false;
            if let Some(timer) = lock.lease.take()
                && !fault!(KeepsTheOldLease)
            {
                self.leases.cancel(timer);
            }
            self.stats.granted += 1;
            let Waiter { connection, owner, received, lease_secs, .. } = waiter;
            let key = &*lock.key;
            self.turns.propose(Effect::HandOff { key, ended, expired, owner, token, lease_secs });
            let ends_ms = ends_ms(received, now, lease_secs);
            let answer = Answer::Granted { token, owner, ends_ms, key };
            let then = Then::Lease { lock: id, secs: lease_secs };
            return self.turns.answer(&mut self.connections, connection, answer, then);
        }
        let Some(lock) = self.locks.remove(id) else { return };
        if let Some(timer) = lock.lease {
            self.leases.cancel(timer);
        }
        let (key, token) = (&*lock.key, lock.token);
        self.turns.propose(if expired {
            Effect::Expire { key, token }
        } else {
            Effect::Release { key, token }
        });
    }

    /// A batch has been applied, and so have those before it.
    pub(crate) fn committed(&mut self, now: Nanos, seq: Seq) {
        self.turns.commit(seq);
        while let Some(place) = self.turns.settle_next() {
            self.begin(now, place);
        }
    }

    /// A batch was not applied, or nobody knows: what was decided on top of it may
    /// never be true.
    pub(crate) fn lost(&mut self, seq: Seq, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        if self.turns.lose(seq, instead) {
            self.retire();
        }
    }

    /// Leases and tombstones of a turn begin, and what was granted to a connection
    /// that is gone goes on to the next.
    fn begin(&mut self, now: Nanos, place: usize) {
        let mut index = 0;
        while let Some((pending, key)) = self.turns.pending(place, index) {
            index += 1;
            match (pending.then, pending.answer) {
                (Then::Lease { lock: id, secs }, Answer::Granted { token, .. }) => {
                    let is_there = self.connections.settle_acquire(pending.connection);
                    let Some(lock) = self.locks.get_mut(id).filter(|lock| lock.token == token) else {
                        continue;
                    };
                    if is_there || lock.verified {
                        let secs = if fault!(HalvesLeases) { secs.div_ceil(2) } else { secs };
                        lock.lease = Some(self.leases.set(now, u16::from(secs), id));
                    } else {
                        self.give_back(now, id);
                    }
                }
                (Then::Tombstone, Answer::VerifiedBusy { owner, .. }) => {
                    self.tombstones.committed(owner, key, now);
                }
                _ => {}
            }
        }
    }

    /// Runs out what is due, the earliest first.
    pub(crate) fn tick(&mut self, now: Nanos) {
        for _ in 0..self.limits.timers_per_tick {
            let Some(deadline) = self.next_deadline().filter(|&deadline| deadline <= now) else { return };
            if self.waiters.next_deadline() == Some(deadline) {
                if let Some(waiter) = self.waiters.due(now).and_then(|id| self.leave(id)) {
                    self.wait_ran_out(&waiter);
                }
            } else if self.leases.next_deadline() == Some(deadline) {
                let due = self.leases.pop_due(now);
                if let Some((id, lock)) = due.and_then(|id| Some((id, self.locks.get_mut(id)?))) {
                    lock.lease = None;
                    self.stats.expired += 1;
                    self.pass_on(now, id, true);
                }
            } else if let Some(old) = self.tombstones.pop_due(now) {
                self.turns.propose(Effect::Forget { key: &old.key, owner: old.owner });
            }
        }
    }

    /// The client never heard of its grant: the next one gets it.
    pub(crate) fn undelivered(&mut self, now: Nanos, token: u64, key: &[u8]) {
        if let Some(id) = self.locks.find(key)
            && (fault!(GivesBackWhateverIsHeld)
                || self.locks.get(id).is_some_and(|lock| lock.token == token && !lock.verified))
        {
            self.give_back(now, id);
        }
    }

    /// The waiters of a connection leave without a word, and grants whose answers
    /// were about to go out are given back. Those that have not committed follow
    /// when they do.
    pub(crate) fn closed(&mut self, now: Nanos, connection: ConnId) {
        self.leave_queues(connection);
        for (id, token) in self.turns.committed_grants(connection) {
            if self.locks.get(id).is_some_and(|lock| lock.token == token && !lock.verified) {
                self.give_back(now, id);
            }
        }
        self.connections.close(connection);
    }

    /// The waiters of a connection leave without a word.
    pub(crate) fn leave_queues(&mut self, connection: ConnId) {
        while let Some(id) = self.connections.get(connection).map(|connection| connection.first_waiter)
            && self.leave(id).is_some()
        {
            self.connections.settle_acquire(connection);
        }
    }

    fn give_back(&mut self, now: Nanos, id: u32) {
        self.stats.given_back += 1;
        self.stats.released += 1;
        self.pass_on(now, id, false);
    }

    pub(crate) fn start_draining(&mut self) {
        if self.office == Office::Serving {
            self.office = Office::Draining;
            for id in self.locks.ids() {
                self.refuse_queue(id);
            }
        }
    }

    /// Another node may decide from here on, so this one says no more than what is
    /// true whatever that one does.
    pub(crate) fn retire(&mut self) {
        if self.office == Office::Retired {
            return;
        }
        self.turns.abandon(refused);
        for id in self.locks.ids() {
            self.refuse_queue(id);
        }
        self.office = Office::Retired;
        self.locks = Locks::new(self.seed);
        self.leases = ticketing_timers::Timers::new();
        self.waiters = Waiters::new(self.seed);
        self.tombstones = Tombstones::new(self.seed);
    }

    pub(crate) const fn is_out_of_tokens(&self) -> bool {
        self.next_token.is_none()
    }

    pub(crate) fn take_token(&mut self) -> Option<u64> {
        let token = self.next_token?;
        self.next_token = token.checked_add(if fault!(SkipsTokens) { 2 } else { 1 });
        Some(token)
    }

    fn refuse_queue(&mut self, lock: u32) {
        while let Some(head) = self.locks.get(lock).and_then(super::locks::Lock::head) {
            self.refuse_waiter(head);
        }
    }

    pub(crate) fn refuse_waiter(&mut self, id: u32) {
        let Some(waiter) = self.leave(id) else { return };
        self.stats.busy += 1;
        self.last_word(&waiter, |owner, key| Answer::Busy { owner, key });
    }

    fn wait_ran_out(&mut self, waiter: &Waiter) {
        self.stats.timed_out += 1;
        self.last_word(waiter, |owner, key| Answer::TimedOut { owner, key });
    }

    /// Tells a waiter that has left that it left without the lock.
    fn last_word(&mut self, waiter: &Waiter, word: impl FnOnce(u64, &[u8]) -> Answer<'_>) {
        let Some(lock) = self.locks.get(waiter.lock) else { return };
        let answer = word(waiter.owner, &lock.key);
        self.connections.settle_acquire(waiter.connection);
        self.turns.answer(&mut self.connections, waiter.connection, answer, Then::Free);
    }

    /// Takes a waiter out of everything; its fate is the caller's to settle.
    fn leave(&mut self, id: u32) -> Option<Waiter> {
        let waiter = self.waiters.remove(id, &mut self.connections)?;
        if let Some(queue) = self.locks.get_mut(waiter.lock).and_then(|lock| lock.queue.as_deref_mut()) {
            queue.remove(waiter.position);
            if queue.is_sparse() {
                queue.pack(|id, position| self.waiters.moved(id, position));
            }
        }
        Some(waiter)
    }
}
