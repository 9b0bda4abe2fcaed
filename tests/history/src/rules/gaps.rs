//! Tokens are dense: every missing one went to an acquire whose outcome nobody knows.
//!
//! A missing token was given out at some time between the grants of its neighbours.
//! Each can be explained by one acquire of which something was sent at or before that
//! time. Tokens and times grow together, so handing out explanations greedily, the
//! one that lapses first before the others, leaves a token unexplained only if every
//! other way does too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::facts::{Facts, Grant, Silent};
use crate::report::Findings;
use crate::{Event, Nanos, Rule};

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    if !facts.rules.dense {
        return;
    }
    let mut grants: Vec<&Grant<'_>> = facts.grants().collect();
    grants.sort_by_key(|grant| (grant.token, grant.returned));
    // What was granted later had been granted when the earliest of those returned.
    let mut before: Vec<Nanos> = grants.iter().map(|grant| grant.returned).collect();
    for index in (1..before.len()).rev() {
        before[index - 1] = before[index - 1].min(before[index]);
    }
    let mut silent: Vec<&Silent<'_>> = facts.keys.values().flat_map(|key| &key.silent).collect();
    silent.sort_by_key(|silent| silent.op.invoked);
    let mut silent = silent.into_iter().peekable();
    let mut explanations: BinaryHeap<Reverse<Nanos>> = BinaryHeap::new();
    let mut from = 0;
    for (pair, &to) in grants.windows(2).zip(before.iter().skip(1)) {
        let [left, right] = pair else { continue };
        from = from.max(left.op.invoked);
        let missing = right.token.saturating_sub(left.token).saturating_sub(1);
        if missing == 0 || has_jumped(facts, from, to) {
            continue;
        }
        while let Some(silent) = silent.next_if(|silent| silent.op.invoked <= to) {
            explanations.push(Reverse(silent.until));
        }
        while explanations.peek().is_some_and(|&Reverse(until)| until < from) {
            explanations.pop();
        }
        let explained = missing.min(explanations.len() as u64);
        for _ in 0..explained {
            explanations.pop();
        }
        if explained < missing {
            let seen = format!(
                "{missing} missing between token {} and token {}, of which {} cannot be explained",
                left.token,
                right.token,
                missing - explained,
            );
            found.add(Rule::TokenGap, &[left.op, right.op], seen);
        }
    }
}

fn has_jumped(facts: &Facts<'_>, from: Nanos, to: Nanos) -> bool {
    facts
        .history
        .notes
        .iter()
        .filter(|note| matches!(note.event, Event::Forgot | Event::SkippedTokens))
        .any(|note| note.from <= to && note.to >= from)
}
