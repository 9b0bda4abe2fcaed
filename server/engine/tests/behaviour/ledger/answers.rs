//! What clients are told.

use std::collections::BTreeMap;

use ticketing_engine::{Answer, ConnId, Nanos};

use super::{Arrival, Asked, Certain, End, Ledger, demand};
use crate::machine::{known, name};
use crate::model::Key;

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
        // An engine that is out of office may say so late.
        let before = self.granted.range((key, 0)..(key, token)).next_back().map(|(_, &number)| number);
        let after = self.granted.range((key, token)..=(key, u64::MAX)).next().map(|(_, &number)| number);
        let in_order = before < Some(arrival.number) && after.is_none_or(|after| arrival.number < after);
        demand(&mut self.objections, in_order, || {
            format!("FIFO: {} {token} overtook one that came earlier, or was overtaken", name(key))
        });
        self.granted.insert((key, token), arrival.number);
        demand(&mut self.objections, grant.handed_off || grant.turn == arrival.turn, || {
            format!("FIFO: {} was free while {owner}, who has {token} now, waited for it", name(key))
        });
        // What the client makes of it: a bound that can only be too early.
        let until = arrival.received + u64::from(ends_ms) * 1_000_000;
        if self.given_up.contains(&(token, key)) || grant.ended == Some(End::Released) {
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
        let mut open = BTreeMap::<ConnId, (usize, usize)>::new();
        for (&(conn, asked), &count) in self.open.iter().filter(|((conn, _), _)| !self.left.contains(conn)) {
            let (any, acquires) = open.entry(conn).or_default();
            *any += count;
            *acquires += if matches!(asked, Asked::Acquire { .. }) { count } else { 0 };
        }
        for (conn, (open, acquires)) in open {
            let closings = self.close_told.get(&conn).copied().unwrap_or(0);
            let unbound = self.not_leader.get(&conn).copied().unwrap_or(0) + closings;
            demand(&mut self.objections, open == unbound && acquires <= closings, || {
                format!(
                    "REPLY: {conn:?} has {open} requests without a word, {acquires} of them acquires, \
                     and {unbound} words to none, {closings} of them closings"
                )
            });
        }
    }

    /// Locks and tombstones, as the committed effects leave them.
    pub(crate) fn table_is_empty(&self) -> bool {
        self.held.is_empty() && self.buried.is_empty()
    }
}
