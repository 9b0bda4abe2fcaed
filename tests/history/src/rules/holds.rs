//! One holder at a time.
//!
//! A greater token is the later grant, and a grant is made only when the one before it
//! has ended. So no grant may have returned before an earlier one had surely ended,
//! even if the earlier one's client heard of it later.

use crate::Rule;
use crate::facts::{Facts, Grant};
use crate::report::Findings;

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for key in facts.keys.values() {
        let mut longest: Option<(&Grant<'_>, u64)> = None;
        for grant in &key.grants {
            if let Some((before, end)) = longest
                && grant.returned < end
            {
                let seen = format!(
                    "token {} was granted by {} while token {} was held until {}",
                    grant.token,
                    found.time(grant.returned),
                    before.token,
                    found.time(end),
                );
                found.add(Rule::Exclusion, &[before.op, grant.op], seen);
            }
            let end = key.certain_end(grant);
            if longest.is_none_or(|(_, latest)| latest < end) {
                longest = Some((grant, end));
            }
        }
    }
    for grant in facts.grants() {
        if let Some(claimed) = grant.claimed
            && claimed > grant.returned.saturating_add(grant.lease)
        {
            let seen = format!("held until {} by its own account", found.time(claimed));
            found.add(Rule::Overclaim, &[grant.op], seen);
        }
    }
}
