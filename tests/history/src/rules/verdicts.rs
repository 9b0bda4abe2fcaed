//! What a verify says stays true: an acquire holds the lock, or it never will.

use crate::facts::{Facts, Grant, KeyFacts, Releases};
use crate::report::Findings;
use crate::{Op, Outcome, Returned, Rule};

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for key in facts.keys.values() {
        for grant in &key.grants {
            for &verify in facts.verifies.get(&grant.op.id).map_or(&[][..], Vec::as_slice) {
                let Some(Returned { at, outcome }) = verify.returned else { continue };
                if let Outcome::Granted { token, .. } = outcome {
                    held(facts, key, grant, verify, token, found);
                } else if outcome == Outcome::NotAcquired && key.surely_held_at(grant, at) {
                    let seen = "not held, though its lease had not ended".to_owned();
                    found.add(Rule::Verdict, &[verify, grant.op], seen);
                }
            }
        }
    }
}

fn held(
    facts: &Facts<'_>,
    key: &KeyFacts<'_>,
    grant: &Grant<'_>,
    verify: &Op,
    token: u64,
    found: &mut Findings<'_>,
) {
    let acquire = grant.op;
    if token != grant.token {
        let seen = format!("held under token {token} and under token {}", grant.token);
        found.add(Rule::Verdict, &[verify, acquire], seen);
    }
    if matches!(acquire.outcome(), Some(Outcome::TimedOut | Outcome::Busy | Outcome::NotSent)) {
        found.add(
            Rule::Verdict,
            &[verify, acquire],
            "held, though it was told that it never will be".to_owned(),
        );
    }
    let before = |op: &Op| op.returned.is_some_and(|returned| returned.at < verify.invoked);
    let mut verifies = facts.verifies.get(&acquire.id).into_iter().flatten();
    if let Some(&no) = verifies.find(|op| op.outcome() == Some(Outcome::NotAcquired) && before(op)) {
        found.add(Rule::Verdict, &[no, verify, acquire], "held after all".to_owned());
    }
    let released = key.releases.get(&token).and_then(Releases::confirmed);
    if let Some(release) = released.filter(|op| before(op)) {
        found.add(Rule::Verdict, &[release, verify, acquire], "held, though it was released".to_owned());
    }
}
