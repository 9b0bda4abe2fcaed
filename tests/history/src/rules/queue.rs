//! First come, first served: a queue is served in the order in which its acquires
//! arrived, and nobody barges in.
//!
//! Two acquires are known to have arrived in an order if they were sent on one
//! connection, or if one had been seen in the queue before the other was sent.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::facts::{Facts, Grant, KeyFacts};
use crate::report::Findings;
use crate::{Call, Nanos, Rule};

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for key in facts.keys.values() {
        on_one_connection(key, found);
        behind_the_queue(key, found);
    }
}

fn on_one_connection(key: &KeyFacts<'_>, found: &mut Findings<'_>) {
    let mut lanes: HashMap<u64, Vec<(u64, &Grant<'_>)>> = HashMap::new();
    for grant in &key.grants {
        if let Some(lane) = grant.op.lane {
            lanes.entry(lane.connection).or_default().push((lane.order, grant));
        }
    }
    let mut lanes: Vec<_> = lanes.into_iter().collect();
    lanes.sort_unstable_by_key(|(connection, _)| *connection);
    for (_, mut grants) in lanes {
        grants.sort_by_key(|(order, _)| *order);
        let mut greatest: Option<(u64, &Grant<'_>)> = None;
        for (order, grant) in grants {
            match greatest {
                Some((earlier, before)) if before.token > grant.token && earlier < order => {
                    let seen = format!(
                        "token {} went to the earlier of two requests, token {} to the later",
                        before.token, grant.token
                    );
                    found.add(Rule::Fifo, &[before.op, grant.op], seen);
                }
                _ => greatest = Some((order, grant)),
            }
        }
    }
}

fn behind_the_queue(key: &KeyFacts<'_>, found: &mut Findings<'_>) {
    let seen_at = |grant: &Grant<'_>| match grant.op.call {
        Call::Acquire { queued, .. } => queued,
        Call::Release { .. } | Call::Verify { .. } => None,
    };
    let mut queued: Vec<(Nanos, &Grant<'_>)> =
        key.grants.iter().filter_map(|grant| Some((seen_at(grant)?, grant))).collect();
    if queued.is_empty() {
        return;
    }
    queued.sort_by_key(|(at, _)| Reverse(*at));
    let mut grants: Vec<&Grant<'_>> = key.grants.iter().collect();
    grants.sort_by_key(|grant| grant.op.invoked);
    let mut greatest: Option<&Grant<'_>> = None;
    for grant in grants {
        while let Some((_, ahead)) = queued.pop_if(|(at, _)| *at < grant.op.invoked) {
            greatest = greatest.filter(|greatest| greatest.token >= ahead.token).or(Some(ahead));
        }
        if let Some(ahead) = greatest.filter(|ahead| ahead.token > grant.token) {
            let seen = format!(
                "token {} went past a request in the queue, which got token {}",
                grant.token, ahead.token
            );
            found.add(Rule::Fifo, &[ahead.op, grant.op], seen);
        }
    }
}
