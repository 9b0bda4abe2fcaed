//! Every request is answered, neither early nor late, and refused only for a reason.

use crate::facts::Facts;
use crate::report::Findings;
use crate::{Call, Nanos, Op, Outcome, Rule, SECOND};

pub(crate) fn check(facts: &Facts<'_>, found: &mut Findings<'_>) {
    for op in &facts.history.ops {
        let wait = match op.call {
            Call::Acquire { wait_secs, .. } => u64::from(wait_secs) * SECOND,
            Call::Release { .. } => 0,
            // Its patience is the caller's own.
            Call::Verify { .. } => continue,
        };
        in_time(facts, op, wait, found);
        if let Call::Acquire { cancelled, .. } = op.call {
            let shortest = wait - wait / 1_000_000 * u64::from(facts.rules.drift_ppm);
            match op.returned.map(|returned| (returned.outcome, returned.at - op.invoked)) {
                Some((Outcome::TimedOut, took)) if took < shortest => {
                    found.add(Rule::EarlyTimeout, &[op], format!("timed out after {}", seconds(took)));
                }
                Some((Outcome::Busy, _)) if !facts.rules.busy && !cancelled => {
                    found.add(Rule::GroundlessBusy, &[op], "refused".to_owned());
                }
                _ => {}
            }
        }
    }
}

fn in_time(facts: &Facts<'_>, op: &Op, wait: Nanos, found: &mut Findings<'_>) {
    let Some(late) = facts.rules.late_answer else { return };
    let drift = wait / 1_000_000 * u64::from(facts.rules.drift_ppm);
    let longest = (wait + drift).saturating_add(late);
    match op.returned {
        Some(returned) if returned.at - op.invoked > longest => {
            let seen = format!("after {}", seconds(returned.at - op.invoked));
            found.add(Rule::LateAnswer, &[op], seen);
        }
        None if !facts.died.contains(&op.process)
            && facts.end.is_some_and(|end| end > op.invoked.saturating_add(longest)) =>
        {
            found.add(Rule::NoAnswer, &[op], "never answered".to_owned());
        }
        Some(_) | None => {}
    }
}

fn seconds(nanos: Nanos) -> String {
    format!("{}.{:06} s", nanos / SECOND, nanos % SECOND / 1000)
}
