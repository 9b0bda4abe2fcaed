//! What goes through the log, and what it makes of the table.

use ticketing_engine::{Effect, Nanos, SECOND, Seq};

use super::{End, Grant, Held, Ledger, demand};
use crate::machine::{effect, known, name};
use crate::model::Key;

const TOMBSTONE: Nanos = 600 * SECOND;

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

    /// Another engine takes office. What the last one decided and was not applied
    /// never was.
    pub(crate) fn succeed(&mut self) {
        self.office += 1;
        for effect in std::mem::take(&mut self.in_flight).into_values().flatten() {
            match effect {
                Effect::Grant { token, .. } => self.never_given(token),
                Effect::HandOff { token, ended, .. } => {
                    self.never_given(token);
                    self.never_ended(ended);
                }
                Effect::Release { token, .. } | Effect::Expire { token, .. } => self.never_ended(token),
                Effect::Bury { .. } | Effect::Forget { .. } => {}
            }
        }
        let is_over = |token: &u64| self.grants.get(token).is_some_and(|grant| grant.ended.is_some());
        self.asked_back.retain(|(token, _)| is_over(token));
        let last = self.grants.last_key_value().map_or(0, |(&token, _)| token);
        self.last_token = last.max(self.config.next_token.max(1) - 1);
        (self.last_seq, self.last_tick) = (0, 0);
        self.retired = false;
    }

    fn never_given(&mut self, token: u64) {
        let grant = self.grants.remove(&token);
        demand(&mut self.objections, grant.is_some_and(|grant| !grant.told), || {
            format!("REPLY: token {token} was told, and is lost with its engine")
        });
    }

    fn never_ended(&mut self, token: u64) {
        if let Some(grant) = self.grants.get_mut(&token) {
            demand(&mut self.objections, !grant.release_told, || {
                format!("REPLY: the release of {token} was told, and is lost with its engine")
            });
            grant.ended = None;
        }
    }

    /// Judges what can be judged before the commit, in log order.
    fn decided(&mut self, seq: Seq, decision: Effect<'static>) {
        let turn = (self.office, seq);
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
        let of_this_office = grant.turn.0 == self.office;
        if expired {
            let over = self.held.get(key).filter(|held| held.token == token).map(|held| held.lease_over);
            let tick = self.last_tick;
            demand(&mut self.objections, over.is_some_and(|over| over <= tick), || {
                format!("LEASE: {} {token} expired at {tick}, its lease is over at {over:?}", name(key))
            });
            let somebody_may_know = grant.told
                || !of_this_office
                || self.verifies.contains(&(grant.owner, key))
                || self.arrivals.iter().any(|arrival| (arrival.owner, arrival.key) == (grant.owner, key))
                || self.abandoned.get(&(grant.owner, key)).copied() >= over;
            demand(&mut self.objections, somebody_may_know, || {
                format!("ORPH: {} {token} was held to the end for nobody", name(key))
            });
        } else if !asked {
            demand(&mut self.objections, of_this_office, || {
                format!("LOST: {} {token} was taken back by another engine than granted it", name(key))
            });
            let nobody_was_told = !grant.told && self.abandoned.contains_key(&(grant.owner, key));
            demand(&mut self.objections, nobody_was_told || self.undelivered.contains(&(token, key)), || {
                format!("LOST: {} {token} ended without a reason", name(key))
            });
            demand(&mut self.objections, !grant.verified, || {
                format!("LOST: {} {token} was taken back after a verify was told of it", name(key))
            });
        }
    }

    /// A batch of the engine in office is applied.
    pub(crate) fn applied(&mut self, now: Nanos, seq: Seq) {
        for effect in self.in_flight.remove(&seq).expect("a batch in flight") {
            self.apply(now, effect);
        }
        let (held, buried) = (self.held.len(), self.buried.len());
        let (most_held, most_buried) = (self.config.limits.held, self.config.limits.tombstones);
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
