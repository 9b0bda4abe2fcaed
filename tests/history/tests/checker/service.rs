//! A lock service in a few lines, correct unless it is told to have a bug.

use std::collections::{HashSet, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_history::{Nanos, SECOND};

/// What the service does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    ExpiresEarly,
    NeverExpires,
    GrantsWhatIsHeld,
    ServesTheLastFirst,
    LetsImmediateTriesBarge,
    TakesAnyToken,
    ReleasesTwice,
    ForgetsOnFailover,
    ReusesTokens,
    CountsTokensPerKey,
    SkipsTokens,
    TimesOutEarly,
    NeverTimesOut,
    LosesWakeups,
    LosesLocks,
    LiesToVerify,
    GrantsAfterTimeout,
    RefusesForNothing,
    ClientCountsFromReceipt,
}

/// An acquire as the service knows it; its number is that of the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) op: usize,
    pub(crate) connection: usize,
    pub(crate) arrived: Nanos,
    pub(crate) wait: Nanos,
    pub(crate) lease: Nanos,
}

/// What the service does next, for the world to carry out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Granted {
        waiter: Waiter,
        key: usize,
        token: u64,
    },
    TimedOut(Waiter),
    Busy(Waiter),
    /// Look at the wait of this operation then.
    WakeWait(Nanos, usize, usize),
    /// Look at the lease of this grant then.
    WakeLease(Nanos, usize, u64),
}

#[derive(Default)]
struct Key {
    holder: Option<(usize, u64)>,
    last_released: Option<u64>,
    tokens: u64,
    queue: VecDeque<Waiter>,
}

pub(crate) struct Service {
    keys: Vec<Key>,
    next_token: u64,
    tombstones: HashSet<usize>,
    pub(crate) bug: Option<Bug>,
    random: StdRng,
    /// At most so late does it notice the end of a lease.
    slack: Nanos,
    pub(crate) acts: Vec<Act>,
}

impl Service {
    pub(crate) fn new(keys: usize, seed: u64, slack: Nanos, bug: Option<Bug>) -> Self {
        Self {
            keys: (1..=keys as u64).map(|key| Key { tokens: 1000 * key, ..Key::default() }).collect(),
            next_token: 1000,
            tombstones: HashSet::new(),
            bug,
            random: StdRng::seed_from_u64(seed),
            slack,
            acts: Vec::new(),
        }
    }

    fn has(&mut self, bug: Bug) -> bool {
        self.bug == Some(bug) && self.random.random_ratio(1, 3)
    }

    pub(crate) fn acquire(&mut self, now: Nanos, key: usize, waiter: Waiter) {
        let barges = self.has(Bug::GrantsWhatIsHeld) && waiter.wait == 0;
        if self.tombstones.contains(&waiter.op) || self.has(Bug::RefusesForNothing) {
            self.acts.push(Act::Busy(waiter));
        } else if self.keys[key].holder.is_none() || barges {
            self.grant(now, key, waiter);
        } else if waiter.wait == 0 {
            if self.bug == Some(Bug::LetsImmediateTriesBarge) {
                self.keys[key].queue.push_front(waiter);
            } else {
                self.acts.push(Act::TimedOut(waiter));
            }
        } else {
            self.keys[key].queue.push_back(waiter);
            let wait = if self.has(Bug::TimesOutEarly) { waiter.wait / 10 * 8 } else { waiter.wait };
            if self.bug != Some(Bug::NeverTimesOut) {
                self.acts.push(Act::WakeWait(now + wait, key, waiter.op));
            }
        }
    }

    fn grant(&mut self, now: Nanos, key: usize, waiter: Waiter) {
        if self.has(Bug::SkipsTokens) {
            self.next_token += 1;
        }
        let per_key = self.bug == Some(Bug::CountsTokensPerKey);
        let counter = if per_key { &mut self.keys[key].tokens } else { &mut self.next_token };
        let token = *counter;
        *counter += 1;
        self.keys[key].holder = Some((waiter.op, token));
        let lease = if self.has(Bug::ExpiresEarly) { waiter.lease / 2 } else { waiter.lease };
        if self.bug != Some(Bug::NeverExpires) {
            let over = now + lease + self.random.random_range(0..=self.slack);
            self.acts.push(Act::WakeLease(over, key, token));
        }
        self.acts.push(Act::Granted { waiter, key, token });
    }

    fn pass_on(&mut self, now: Nanos, key: usize) {
        let locks = &mut self.keys[key];
        locks.last_released = locks.holder.take().map(|(_, token)| token);
        if self.has(Bug::LosesWakeups) {
            return;
        }
        let last_first = self.has(Bug::ServesTheLastFirst);
        let queue = &mut self.keys[key].queue;
        if let Some(next) = if last_first { queue.pop_back() } else { queue.pop_front() } {
            self.grant(now, key, next);
        }
    }

    /// Whether it was held under that token, and so is released now.
    pub(crate) fn release(&mut self, now: Nanos, key: usize, token: u64) -> bool {
        let held = self.keys[key].holder.is_some_and(|(_, current)| current == token);
        if held && self.has(Bug::LosesLocks) {
            return false;
        }
        let any = self.keys[key].holder.is_some() && self.has(Bug::TakesAnyToken);
        if held || any {
            self.pass_on(now, key);
        }
        held || any || self.bug == Some(Bug::ReleasesTwice) && self.keys[key].last_released == Some(token)
    }

    pub(crate) fn wait_is_over(&mut self, key: usize, op: usize) {
        if let Some(place) = self.place(key, op) {
            let waiter = self.keys[key].queue[place];
            if !self.has(Bug::GrantsAfterTimeout) {
                self.keys[key].queue.remove(place);
            }
            self.acts.push(Act::TimedOut(waiter));
        }
    }

    pub(crate) fn lease_is_over(&mut self, now: Nanos, key: usize, token: u64) {
        if self.keys[key].holder.is_some_and(|(_, current)| current == token) {
            self.pass_on(now, key);
        }
    }

    pub(crate) fn place(&self, key: usize, op: usize) -> Option<usize> {
        self.keys[key].queue.iter().position(|waiter| waiter.op == op)
    }

    pub(crate) fn cancel(&mut self, key: usize, op: usize) {
        if let Some(waiter) = self.place(key, op).and_then(|place| self.keys[key].queue.remove(place)) {
            self.acts.push(Act::Busy(waiter));
        }
    }

    /// The token under which the operation holds the key; else it never will.
    pub(crate) fn verify(&mut self, key: usize, op: usize) -> Option<u64> {
        if let Some((_, token)) = self.keys[key].holder.filter(|(holder, _)| *holder == op)
            && !self.has(Bug::LiesToVerify)
        {
            return Some(token);
        }
        if self.bug != Some(Bug::LiesToVerify) {
            self.cancel(key, op);
            self.tombstones.insert(op);
        }
        None
    }

    /// The waiters of a connection that is gone leave.
    pub(crate) fn gone(&mut self, connection: usize) {
        for key in &mut self.keys {
            key.queue.retain(|waiter| waiter.connection != connection);
        }
    }

    /// Gives back what was granted to nobody.
    pub(crate) fn undelivered(&mut self, now: Nanos, key: usize, token: u64) {
        self.lease_is_over(now, key, token);
    }

    /// A leader ends; the waiters it had are told.
    pub(crate) fn lose_office(&mut self) -> Vec<Waiter> {
        self.keys.iter_mut().flat_map(|key| std::mem::take(&mut key.queue)).collect()
    }

    /// Another leader begins.
    pub(crate) fn take_office(&mut self) {
        if self.has(Bug::ForgetsOnFailover) {
            self.forget();
        }
        if self.bug == Some(Bug::ReusesTokens) {
            self.next_token -= 2;
        }
    }

    pub(crate) fn forget(&mut self) {
        self.keys.iter_mut().for_each(|key| key.holder = None);
    }

    pub(crate) const fn skip_tokens(&mut self) {
        self.next_token += 1 << 40;
    }
}

/// Of a client that knows how long its acquire waited, or does not.
pub(crate) fn claimed_end(
    bug: Option<Bug>,
    sent: Nanos,
    received: Nanos,
    waited: Nanos,
    lease: Nanos,
) -> Nanos {
    if bug == Some(Bug::ClientCountsFromReceipt) {
        received + lease + SECOND / 1000
    } else {
        sent + (waited + lease) / 1000 * 995
    }
}
