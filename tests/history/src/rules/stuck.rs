//! A free key is granted: while an acquire waits, or is refused an immediate try,
//! somebody else must be able to hold the key.

use std::collections::HashMap;

use crate::facts::{Facts, KeyFacts, Releases};
use crate::report::Findings;
use crate::{Call, Nanos, Outcome, Returned, Rule, SECOND};

/// From when until when somebody may hold a key.
type Span = (Nanos, Nanos);

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    let Some(late) = facts.rules.late_answer else { return };
    let mut refused: HashMap<&str, Vec<Span>> = HashMap::new();
    if facts.rules.busy {
        // A grant that was on its way to the log, and came to nothing with its leader, has
        // turned away others meanwhile.
        for op in &facts.history.ops {
            if let (Call::Acquire { .. }, Some(Returned { at, outcome: Outcome::Busy })) =
                (&op.call, op.returned)
            {
                refused.entry(&op.key).or_default().push((op.invoked, at));
            }
        }
    }
    let spans: Option<HashMap<&str, Vec<Span>>> = facts
        .keys
        .iter()
        .map(|(&name, key)| {
            let refused = refused.remove(name).unwrap_or_default();
            Some((name, spans(facts, key, refused, late)?))
        })
        .collect();
    let Some(spans) = spans else { return };
    for op in &facts.history.ops {
        let (Call::Acquire { wait_secs, .. }, Some(returned)) = (&op.call, op.returned) else { continue };
        let held = spans.get(&*op.key).map_or(&[][..], Vec::as_slice);
        let waited = match returned.outcome {
            Outcome::TimedOut => true,
            Outcome::Granted { .. } => *wait_secs > 0,
            Outcome::Busy | Outcome::GivenBack | Outcome::NotSent | Outcome::Indeterminate => false,
            Outcome::Released | Outcome::NotHeld { .. } | Outcome::NotAcquired => false,
        };
        if !waited {
            continue;
        }
        if *wait_secs == 0 {
            let begun = held.partition_point(|&(from, _)| from <= returned.at);
            let last = begun.checked_sub(1).and_then(|last| held.get(last));
            if last.is_none_or(|&(_, to)| to < op.invoked) {
                found.add(Rule::Stuck, &[op], "refused, though nobody can hold the key".to_owned());
            }
            continue;
        }
        let (from, to) = (op.invoked.saturating_add(late), returned.at.saturating_sub(late));
        if from < to
            && let Some(free) = first_gap(held, from, to)
        {
            let seen = format!("waited, though nobody can hold the key at {}", found.time(free));
            found.add(Rule::Stuck, &[op], seen);
        }
    }
}

/// When somebody may hold the key, in order and apart from each other, beside these
/// `spans`; `None`: it is not known when leases end.
fn spans(facts: &Facts<'_>, key: &KeyFacts<'_>, mut spans: Vec<Span>, late: Nanos) -> Option<Vec<Span>> {
    for grant in &key.grants {
        let told_itself = grant.op.returned.is_some_and(|returned| returned.at == grant.returned);
        let earliest = if told_itself { grant.returned.saturating_sub(late) } else { 0 };
        let released = key.releases.get(&grant.token).and_then(Releases::confirmed);
        let to = match released.and_then(|op| op.returned) {
            Some(released) => released.at,
            None => facts.lease_is_over(grant.returned, grant.lease)?,
        };
        spans.push((grant.op.invoked.max(earliest), to));
    }
    for silent in &key.silent {
        let Call::Acquire { wait_secs, lease_secs, .. } = silent.op.call else { continue };
        let wait = u64::from(wait_secs) * SECOND;
        let granted = silent.op.invoked.saturating_add(wait).saturating_add(late).min(silent.until);
        spans.push((silent.op.invoked, facts.lease_is_over(granted, u64::from(lease_secs) * SECOND)?));
    }
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    Some(merged)
}

/// The first moment from `from` to `to` that no span covers.
fn first_gap(spans: &[Span], from: Nanos, to: Nanos) -> Option<Nanos> {
    let begun = spans.partition_point(|&(start, _)| start <= from);
    let end = begun.checked_sub(1).and_then(|last| spans.get(last)).map(|&(_, end)| end);
    match end.filter(|&end| end >= from) {
        None => Some(from),
        Some(end) if end < to => Some(end),
        Some(_) => None,
    }
}
