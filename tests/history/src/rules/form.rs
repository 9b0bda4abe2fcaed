//! The history itself: a checker that passes over nonsense proves nothing.

use std::collections::HashMap;

use crate::report::Findings;
use crate::{Call, Event, History, Op, Outcome, Rule};

pub(crate) fn check(history: &History, found: &mut Findings<'_>) {
    let mut ids: HashMap<u64, &Op> = HashMap::with_capacity(history.ops.len());
    for op in &history.ops {
        if let Some(other) = ids.insert(op.id, op) {
            found.add(Rule::Malformed, &[other, op], format!("two requests have the id {}", op.id));
        }
        if let Some(returned) = op.returned {
            if returned.at < op.invoked {
                found.add(Rule::Malformed, &[op], "it returned before it was invoked".to_owned());
            }
            if !fits(&op.call, returned.outcome) {
                let seen = format!("{:?} is no outcome of such a request", returned.outcome);
                found.add(Rule::Malformed, &[op], seen);
            }
        }
    }
    for op in &history.ops {
        if let Call::Verify { of } = op.call {
            match ids.get(&of) {
                Some(acquire) if matches!(acquire.call, Call::Acquire { .. }) && acquire.key == op.key => {}
                _ => found.add(Rule::Malformed, &[op], format!("no acquire of that key has the id {of}")),
            }
        }
    }
    for note in &history.notes {
        if note.from > note.to {
            found.add(Rule::Malformed, &[], format!("it ended before it began: {note:?}"));
        }
        if let Event::Stray { text } = &note.event {
            found.add(Rule::Stray, &[], format!("at {}: {text}", found.time(note.from)));
        }
    }
}

const fn fits(call: &Call, outcome: Outcome) -> bool {
    match outcome {
        Outcome::Granted { .. } => matches!(call, Call::Acquire { .. } | Call::Verify { .. }),
        Outcome::TimedOut | Outcome::Busy | Outcome::GivenBack => matches!(call, Call::Acquire { .. }),
        Outcome::Released | Outcome::NotHeld { .. } => matches!(call, Call::Release { .. }),
        Outcome::NotAcquired => matches!(call, Call::Verify { .. }),
        Outcome::NotSent | Outcome::Indeterminate => true,
    }
}
