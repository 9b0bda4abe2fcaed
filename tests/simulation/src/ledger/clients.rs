//! What clients were told, and what they may believe.

use std::sync::Arc;

use ticketing_engine::Office;

use super::{Ask, Ledger};
use crate::time::Time;

/// How a client is told that it did not get a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    TimedOut,
    Busy,
    /// The verdict of a verify.
    NotAcquired,
}

impl Ledger {
    /// A client begins an acquire.
    pub(crate) fn asks(&mut self, client: (u8, u32), owner: u64, key: &Arc<str>) {
        self.count.asked += 1;
        let (key, newer_than) = (Arc::clone(key), self.told);
        let ask = Ask { client, key, newer_than, refused: None, verified: false, token: None };
        if self.asks.insert(owner, ask).is_some() {
            self.fail("Owner", format!("{owner:x} was used before"));
        }
    }

    /// A client is told that it holds a lock, up to `until` for certain. `taken`: the
    /// caller is there and acts on it.
    pub(crate) fn granted(&mut self, now: Time, owner: u64, token: u64, until: Time, taken: bool) {
        let Some(ask) = self.asks.get(&owner) else {
            return self.fail("Owner", format!("{token} is told to {owner:x}, who never asked"));
        };
        let (client, newer_than) = (ask.client, ask.newer_than);
        let key = Arc::clone(&ask.key);
        if let Some(no) = ask.refused {
            self.fail("Answer", format!("{owner:x} is told {token} after {no:?}"));
        }
        if token <= newer_than {
            self.fail(
                "Tokens",
                format!("{token} is told to {owner:x}, who asked after {newer_than} was told"),
            );
        }
        self.told = self.told.max(token);
        let Some(grant) = self.grants.get_mut(&token) else {
            return self.fail("Commit", format!("{owner:x} is told {token}, which has not committed"));
        };
        if grant.owner != owner || *grant.key != *key.as_bytes() {
            let text = format!("{owner:x} is told {token}, which is {:x}'s", grant.owner);
            return self.fail("Commit", text);
        }
        if let Some(at) = grant.run_out_at.filter(|&at| at < until) {
            let early = (until - at) / 1_000_000;
            return self.fail("Lease", format!("{token} ended {early} ms before its holder's own end"));
        }
        if !taken {
            grant.unwanted = true;
            return;
        }
        self.count.granted += 1;
        if grant.ended.is_some_and(|end| !end.expired) {
            return self.fail("Lost lock", format!("{token} was given back before {owner:x} heard of it"));
        }
        if grant.holder.replace((client, until)).is_some() {
            return self.fail("Once", format!("two callers are told that they hold {token}"));
        }
        self.holders.push(token);
        self.check_exclusion(now, &key, token);
    }

    /// Of those who may act on a key there is one.
    fn check_exclusion(&mut self, now: Time, key: &str, token: u64) {
        let grants = &self.grants;
        let acts = |token: &u64| {
            let grant = grants.get(token);
            grant.is_some_and(|it| it.release_at.is_none() && it.holder.is_some_and(|(_, until)| until > now))
        };
        self.holders.retain(acts);
        let of_key = |other: &&u64| grants.get(other).is_some_and(|grant| *grant.key == *key.as_bytes());
        if let Some(other) = self.holders.iter().filter(of_key).find(|&&other| other != token) {
            let text = format!("{token} and {other} are held for certain at the same time");
            self.fail("Exclusion", text);
        }
    }

    /// A client is told that an acquire was not granted and never will be.
    pub(crate) fn refused(&mut self, owner: u64, no: No) {
        match no {
            No::TimedOut => self.count.timed_out += 1,
            No::Busy => self.count.busy += 1,
            No::NotAcquired => self.count.verified += 1,
        }
        let Some(ask) = self.asks.get_mut(&owner) else { return };
        ask.refused = Some(no);
        let Some(token) = ask.token else { return };
        // What was granted and has ended since is not held, and never will be again.
        let ended = self.grants.get(&token).is_none_or(|grant| grant.ended.is_some());
        if no != No::NotAcquired || !ended {
            self.fail("Answer", format!("{owner:x} is told {no:?}, but {token} was granted to it"));
        }
    }

    /// A client asks to give a lock back, on behalf of whoever.
    pub(crate) fn releases(&mut self, now: Time, token: u64) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.release_at.get_or_insert(now);
        }
    }

    /// A client is told that it gave the lock back.
    pub(crate) fn released(&mut self, token: u64) {
        if self.grants.get(&token).is_none_or(|grant| grant.ended.is_none()) {
            self.fail("Commit", format!("{token} is said to be released, which has not committed"));
        }
    }

    /// A client is told that it did not hold the lock. `first`: it had not asked before.
    pub(crate) fn not_held(&mut self, now: Time, token: u64, first: bool) {
        let Some(grant) = self.grants.get(&token) else { return };
        if grant.ended.is_none() {
            self.fail("Answer", format!("{token} is said not to be held, but it is"));
        } else if first && grant.holder.is_some_and(|(_, until)| until >= now) {
            self.fail("Lost lock", format!("{token} was lost while its holder could act"));
        }
    }

    /// A client has ended: nobody acts on what it held.
    pub(crate) fn died(&mut self, now: Time, client: (u8, u32)) {
        for grant in self.grants.values_mut() {
            if let Some((holder, until)) = &mut grant.holder
                && *holder == client
            {
                *until = (*until).min(now);
            }
        }
    }

    /// No byte of the answer of this grant has left the server, which is in this office.
    pub(crate) fn undelivered(&mut self, token: u64, office: Option<Office>) {
        let Some(grant) = self.grants.get_mut(&token) else { return };
        let verified = self.asks.get(&grant.owner).is_some_and(|ask| ask.verified);
        if grant.run_out_at.is_none() && !verified {
            grant.undelivered = office;
        }
    }

    /// Somebody asks a server how an acquire stands.
    pub(crate) fn verified(&mut self, owner: u64) {
        if let Some(ask) = self.asks.get_mut(&owner) {
            ask.verified = true;
        }
    }

    pub(crate) fn is_verified(&self, owner: u64) -> bool {
        self.asks.get(&owner).is_some_and(|ask| ask.verified)
    }
}
