//! A release tells the truth: a lock that is held is there to be released, once, and
//! nothing else is.

use std::collections::HashMap;

use crate::facts::{Facts, Grant, KeyFacts, Releases, Silent};
use crate::report::Findings;
use crate::{Nanos, Op, Outcome, Rule};

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for key in facts.keys.values() {
        let grants = with_the_next(key);
        let mut tokens: Vec<u64> = key.releases.keys().copied().collect();
        tokens.sort_unstable();
        for (token, releases) in tokens.iter().filter_map(|token| Some((*token, key.releases.get(token)?))) {
            once(releases, found);
            match grants.get(&token) {
                Some((grant, next)) => {
                    not_lost(facts, key, grant, releases, found);
                    current(grant, *next, releases, found);
                }
                None => invented(facts, key, token, releases, found),
            }
        }
    }
}

/// The grants by their tokens, each with the earliest grant of its key that is known
/// to have come after it.
fn with_the_next<'f, 'h>(key: &'f KeyFacts<'h>) -> HashMap<u64, (&'f Grant<'h>, Option<&'f Grant<'h>>)> {
    let mut next: Option<&Grant<'_>> = None;
    let mut grants = HashMap::with_capacity(key.grants.len());
    for grant in key.grants.iter().rev() {
        grants.insert(grant.token, (grant, next));
        if next.is_none_or(|next| grant.returned < next.returned) {
            next = Some(grant);
        }
    }
    grants
}

fn confirmed<'f, 'h>(releases: &'f Releases<'h>) -> impl Iterator<Item = (&'h Op, Nanos)> + 'f {
    let is_confirmed = |op: &&&Op| op.outcome() == Some(Outcome::Released);
    releases.ops.iter().filter(is_confirmed).filter_map(|op| Some((*op, op.returned?.at)))
}

fn once(releases: &Releases<'_>, found: &mut Findings<'_>) {
    let ops: Vec<&Op> = confirmed(releases).map(|(op, _)| op).collect();
    if ops.len() > 1 {
        found.add(Rule::DoubleRelease, &ops, format!("confirmed {} times", ops.len()));
    }
}

fn not_lost(
    facts: &Facts<'_>,
    key: &KeyFacts<'_>,
    grant: &Grant<'_>,
    releases: &Releases<'_>,
    found: &mut Findings<'_>,
) {
    let confirmed = releases.confirmed();
    let refused = releases.ops.iter().filter(|op| op.outcome() == Some(Outcome::NotHeld { retried: false }));
    for &op in refused.filter(|op| op.invoked >= grant.returned) {
        let Some(returned) = op.returned.map(|returned| returned.at) else { continue };
        if key.surely_held_at(grant, returned) {
            let seen = format!("not held, {} before its lease ended", lasting(grant.ends - returned));
            found.add(Rule::LostLock, &[op, grant.op], seen);
        } else if let Some(later) = confirmed.filter(|later| later.invoked > returned) {
            found.add(Rule::LostLock, &[op, later, grant.op], "not held, but released later".to_owned());
        }
    }
    if let Some(over) = facts.lease_is_over(grant.returned, grant.lease)
        && let Some(late) = confirmed.filter(|op| op.invoked > over)
    {
        let seen = format!("still held at {}", found.time(late.invoked));
        found.add(Rule::LateExpiry, &[late, grant.op], seen);
    }
}

/// What was released was held: neither not yet, nor no longer.
fn current(grant: &Grant<'_>, next: Option<&Grant<'_>>, releases: &Releases<'_>, found: &mut Findings<'_>) {
    for (op, returned) in confirmed(releases) {
        if returned < grant.op.invoked {
            found.add(Rule::PhantomRelease, &[op, grant.op], "released before it was asked for".to_owned());
        }
        if let Some(next) = next.filter(|next| next.returned < op.invoked) {
            let seen = format!("released when token {} had been granted", next.token);
            found.add(Rule::PhantomRelease, &[op, grant.op, next.op], seen);
        }
    }
}

/// A token that nobody knows to have been granted: it must be one that an acquire of
/// unknown outcome can have got by then.
fn invented(
    facts: &Facts<'_>,
    key: &KeyFacts<'_>,
    token: u64,
    releases: &Releases<'_>,
    found: &mut Findings<'_>,
) {
    for (op, returned) in confirmed(releases) {
        let fits = |silent: &Silent<'_>| {
            let before = facts.greatest_seen_before(silent.op.invoked);
            silent.op.invoked <= returned && before.is_none_or(|before| before.token < token)
        };
        let too_great = facts.least_asked_after(returned).is_some_and(|least| least <= token);
        if too_great || !key.silent.iter().any(fits) {
            found.add(Rule::PhantomRelease, &[op], "released, but never granted".to_owned());
        }
    }
}

fn lasting(nanos: Nanos) -> String {
    format!("{} ms", nanos / 1_000_000)
}
