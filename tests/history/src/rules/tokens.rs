//! Tokens are unique, and grow in real time over all keys.

use crate::Rule;
use crate::facts::{Facts, Grant};
use crate::report::Findings;

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    unique(facts, found);
    ordered(facts, found);
}

fn unique(facts: &Facts<'_>, found: &mut Findings<'_>) {
    let mut grants: Vec<&Grant<'_>> = facts.grants().collect();
    grants.sort_by_key(|grant| (grant.token, grant.returned));
    if let Some(zero) = grants.first().filter(|grant| grant.token == 0) {
        found.add(Rule::UniqueToken, &[zero.op], "a token of 0".to_owned());
    }
    for pair in grants.windows(2) {
        if let [first, second] = pair
            && first.token == second.token
        {
            let seen = format!("token {} was given out twice", first.token);
            found.add(Rule::UniqueToken, &[first.op, second.op], seen);
        }
    }
}

/// An acquire that began after a grant had been seen gets a greater token than that.
fn ordered(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for grant in facts.grants() {
        let before = facts.greatest_seen_before(grant.op.invoked);
        if let Some(before) = before.filter(|before| before.token >= grant.token) {
            let seen =
                format!("token {} had been seen when token {} was asked for", before.token, grant.token);
            found.add(Rule::TokenOrder, &[before.op, grant.op], seen);
        }
    }
}
