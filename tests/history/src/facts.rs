//! What a history says for certain, put in order once for all rules.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Call, Event, History, Nanos, Op, Outcome, Rules, SECOND};

pub(crate) struct Facts<'h> {
    pub(crate) history: &'h History,
    pub(crate) rules: Rules,
    /// In the order of their names, so that a report is the same every time.
    pub(crate) keys: BTreeMap<&'h str, KeyFacts<'h>>,
    /// Verifies that were answered, by the acquire that they ask about.
    pub(crate) verifies: HashMap<u64, Vec<&'h Op>>,
    pub(crate) end: Option<Nanos>,
    pub(crate) died: HashSet<u64>,
    forgot: Forgot,
    /// By their returns, each with the greatest token of itself and all earlier ones.
    greatest: Vec<(Nanos, Grant<'h>)>,
    /// By their invocations, each with the least token of itself and all later ones.
    least: Vec<(Nanos, u64)>,
}

#[derive(Default)]
pub(crate) struct KeyFacts<'h> {
    /// In the order of their tokens.
    pub(crate) grants: Vec<Grant<'h>>,
    /// Acquires that may have been granted without anybody's knowledge.
    pub(crate) silent: Vec<Silent<'h>>,
    /// By token; those of which something was sent.
    pub(crate) releases: HashMap<u64, Releases<'h>>,
}

/// A grant that its client knows of.
#[derive(Clone, Copy)]
pub(crate) struct Grant<'h> {
    /// The acquire.
    pub(crate) op: &'h Op,
    pub(crate) token: u64,
    /// When the client knew: its acquire returned, or a verify did.
    pub(crate) returned: Nanos,
    /// Until when the client takes the lease to last, and the service has not lost it.
    pub(crate) ends: Nanos,
    /// The end that the client claims.
    pub(crate) claimed: Option<Nanos>,
    pub(crate) lease: Nanos,
}

/// An acquire that may have been granted without anybody's knowledge.
#[derive(Clone, Copy)]
pub(crate) struct Silent<'h> {
    pub(crate) op: &'h Op,
    /// It was not granted after this moment.
    pub(crate) until: Nanos,
}

/// The releases of one grant.
#[derive(Default)]
pub(crate) struct Releases<'h> {
    pub(crate) ops: Vec<&'h Op>,
}

impl<'h> Releases<'h> {
    pub(crate) fn first_invoked(&self) -> Option<Nanos> {
        self.ops.iter().map(|op| op.invoked).min()
    }

    /// The release that ended the grant.
    pub(crate) fn confirmed(&self) -> Option<&'h Op> {
        self.ops.iter().copied().find(|op| op.outcome() == Some(Outcome::Released))
    }

    /// The earliest invocation of one that ended the grant or may have.
    pub(crate) fn may_have_ended_from(&self) -> Option<Nanos> {
        let surely_did_not = |op: &&&Op| op.outcome() == Some(Outcome::NotHeld { retried: false });
        self.ops.iter().filter(|op| !surely_did_not(op)).map(|op| op.invoked).min()
    }
}

impl<'h> Facts<'h> {
    /// The history must make sense.
    pub(crate) fn of(history: &'h History, rules: Rules) -> Self {
        let mut facts = Self {
            history,
            rules,
            keys: BTreeMap::new(),
            verifies: HashMap::new(),
            end: None,
            died: HashSet::new(),
            forgot: Forgot::of(history),
            greatest: Vec::new(),
            least: Vec::new(),
        };
        for note in &history.notes {
            match note.event {
                Event::End => facts.end = Some(facts.end.map_or(note.from, |end: Nanos| end.min(note.from))),
                Event::Died { process } => {
                    facts.died.insert(process);
                }
                Event::Forgot | Event::SkippedTokens | Event::Stray { .. } | Event::Remark { .. } => {}
            }
        }
        for op in history.ops.iter().filter(|op| op.returned.is_some()) {
            if let Call::Verify { of } = op.call {
                facts.verifies.entry(of).or_default().push(op);
            }
        }
        for op in &history.ops {
            match op.call {
                Call::Acquire { lease_secs, .. } => facts.acquire(op, u64::from(lease_secs) * SECOND),
                Call::Release { token } if op.outcome() != Some(Outcome::NotSent) => {
                    let key = facts.keys.entry(&op.key).or_default();
                    key.releases.entry(token).or_default().ops.push(op);
                }
                Call::Release { .. } | Call::Verify { .. } => {}
            }
        }
        for key in facts.keys.values_mut() {
            key.grants.sort_by_key(|grant| (grant.token, grant.returned));
        }
        facts.order_tokens();
        facts
    }

    fn order_tokens(&mut self) {
        let mut greatest: Vec<_> = self.grants().map(|grant| (grant.returned, *grant)).collect();
        greatest.sort_by_key(|(returned, _)| *returned);
        let mut before: Option<Grant<'h>> = None;
        for (_, grant) in &mut greatest {
            *grant = before.filter(|before| before.token >= grant.token).unwrap_or(*grant);
            before = Some(*grant);
        }
        let mut least: Vec<_> = self.grants().map(|grant| (grant.op.invoked, grant.token)).collect();
        least.sort_unstable();
        let mut after = u64::MAX;
        for (_, token) in least.iter_mut().rev() {
            after = after.min(*token);
            *token = after;
        }
        (self.greatest, self.least) = (greatest, least);
    }

    /// The grant with the greatest token that had been seen before `at`: what was asked
    /// for from then on has a greater one.
    pub(crate) fn greatest_seen_before(&self, at: Nanos) -> Option<&Grant<'h>> {
        let seen = self.greatest.partition_point(|(returned, _)| *returned < at);
        self.greatest.get(seen.checked_sub(1)?).map(|(_, grant)| grant)
    }

    /// The least token that was asked for after `at`: what was granted by then has a
    /// smaller one.
    pub(crate) fn least_asked_after(&self, at: Nanos) -> Option<u64> {
        let asked = self.least.partition_point(|(invoked, _)| *invoked <= at);
        self.least.get(asked).map(|(_, token)| *token)
    }

    fn acquire(&mut self, op: &'h Op, lease: Nanos) {
        let verifies = self.verifies.get(&op.id).map_or(&[][..], Vec::as_slice);
        let granted = |op: &Op| match op.returned.map(|returned| (returned.at, returned.outcome)) {
            Some((at, Outcome::Granted { token, ends })) => Some((at, token, ends)),
            _ => None,
        };
        let key = self.keys.entry(&op.key).or_default();
        let known = std::iter::once(op).chain(verifies.iter().copied()).filter_map(granted);
        if let Some((returned, token, claimed)) = known.min_by_key(|(at, ..)| *at) {
            // What the protocol lets a client believe that was told nothing else.
            let ends = claimed.unwrap_or(op.invoked.saturating_add(lease / 1000 * 995));
            let ends = self.forgot.after(op.invoked).map_or(ends, |lost| ends.min(lost));
            key.grants.push(Grant { op, token, returned, ends, claimed, lease });
        } else if matches!(op.outcome(), None | Some(Outcome::Indeterminate | Outcome::GivenBack)) {
            let refused = |op: &&&Op| op.outcome() == Some(Outcome::NotAcquired);
            let until = verifies.iter().filter(refused).filter_map(|op| op.returned).map(|it| it.at).min();
            key.silent.push(Silent { op, until: until.unwrap_or(Nanos::MAX) });
        }
    }

    /// Every known grant, key by key.
    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant<'h>> {
        self.keys.values().flat_map(|key| &key.grants)
    }

    /// When a lease that may have begun at `begun` is over for certain.
    pub(crate) fn lease_is_over(&self, begun: Nanos, lease: Nanos) -> Option<Nanos> {
        let drift = lease / 1_000_000 * u64::from(self.rules.drift_ppm);
        Some(begun.saturating_add(lease + drift).saturating_add(self.rules.late_expiry?))
    }
}

impl<'h> KeyFacts<'h> {
    pub(crate) fn first_release(&self, token: u64) -> Option<Nanos> {
        self.releases.get(&token).and_then(Releases::first_invoked)
    }

    /// When a client is not certain any more that it holds what it was granted.
    pub(crate) fn certain_end(&self, grant: &Grant<'_>) -> Nanos {
        self.first_release(grant.token).map_or(grant.ends, |released| released.min(grant.ends))
    }

    /// Whether the lock must still have been held when a request that returned at
    /// `returned` took effect: its lease had not ended, and no release can have.
    pub(crate) fn surely_held_at(&self, grant: &Grant<'_>, returned: Nanos) -> bool {
        let ended_from = self.releases.get(&grant.token).and_then(Releases::may_have_ended_from);
        returned < grant.ends && ended_from.is_none_or(|from| from > returned)
    }
}

/// When the service lost who holds what.
struct Forgot {
    /// By their ends; each with the earliest beginning of itself and all later ones.
    spans: Vec<(Nanos, Nanos)>,
}

impl Forgot {
    fn of(history: &History) -> Self {
        let forgot = history.notes.iter().filter(|note| note.event == Event::Forgot);
        let mut spans: Vec<(Nanos, Nanos)> = forgot.map(|note| (note.to, note.from)).collect();
        spans.sort_unstable();
        let mut earliest = Nanos::MAX;
        for (_, from) in spans.iter_mut().rev() {
            earliest = earliest.min(*from);
            *from = earliest;
        }
        Self { spans }
    }

    /// From when on a grant that was asked for at `invoked` may have been lost.
    fn after(&self, invoked: Nanos) -> Option<Nanos> {
        let next = self.spans.partition_point(|&(to, _)| to < invoked);
        self.spans.get(next).map(|&(_, from)| from)
    }
}
