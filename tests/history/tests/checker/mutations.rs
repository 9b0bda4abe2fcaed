//! Each promise, broken on purpose in a correct history, in a way that no order of
//! events explains: the checker must see every one.

use rand::RngExt as _;
use ticketing_history::{
    Call, Event, History, Lane, Note, Op, Outcome, Returned, Rule, Rules, SECOND, check,
};

use crate::story::{Grant, Story, fires};
use crate::world::MS;

#[test]
fn a_token_twice() {
    fires(Rule::UniqueToken, |story| {
        let grants = story.grants();
        let (first, second) = (story.pick(grants.clone())?, story.pick(grants)?);
        (first.place != second.place).then_some(())?;
        story.set_token(&second, first.token);
        Some(())
    });
}

#[test]
fn a_token_of_zero() {
    fires(Rule::UniqueToken, |story| {
        let grants = story.grants();
        let grant = story.pick(grants)?;
        story.set_token(&grant, 0);
        Some(())
    });
}

#[test]
fn tokens_exchanged() {
    fires(Rule::TokenOrder, |story| {
        let (early, late) = (story.grants(), story.grants());
        let (early, late) = (story.pick(early)?, story.pick(late)?);
        (early.returned < late.invoked).then_some(())?;
        story.set_token(&early, late.token);
        story.set_token(&late, early.token);
        Some(())
    });
}

#[test]
fn missing_tokens() {
    fires(Rule::TokenGap, |story| {
        let jumps = |note: &Note| matches!(note.event, Event::Forgot | Event::SkippedTokens);
        (!story.history.notes.iter().any(jumps)).then_some(())?;
        let tokens: Vec<u64> = story.grants().iter().map(|grant| grant.token).collect();
        let from = story.pick(tokens.clone()).filter(|from| tokens.iter().any(|token| token < from))?;
        let verified = |op: &Op| {
            matches!(op.outcome(), Some(Outcome::Granted { .. })) && matches!(op.call, Call::Verify { .. })
        };
        story.places(verified).is_empty().then_some(())?;
        let missing = story.places(Story::may_be_silent).len() as u64 + 1;
        for op in &mut story.history.ops {
            if let Call::Release { token } = &mut op.call
                && *token >= from
            {
                *token += missing;
            }
            if let Some(Returned { outcome: Outcome::Granted { token, .. }, .. }) = &mut op.returned
                && *token >= from
            {
                *token += missing;
            }
        }
        Some(())
    });
}

#[test]
fn a_token_that_an_unknown_acquire_was_too_late_for() {
    fires(Rule::TokenGap, |story| {
        story.places(Story::may_be_silent).is_empty().then_some(())?;
        let grants = story.grants();
        let hidden = story.pick(grants.clone())?;
        let (before, after) = (hidden.token.checked_sub(1)?, hidden.token + 1);
        let known = |token| grants.iter().find(|grant| grant.token == token);
        known(before)?;
        // It is taken out, and the only acquire that is unknown began after the next one was seen.
        let later = known(after)?.returned + 1;
        let key = story.key(&hidden).to_owned();
        story.history.ops.remove(hidden.place);
        story.add(&key, Call::acquire(0, 1), later, later + 1, Outcome::Indeterminate);
        Some(())
    });
}

#[test]
fn a_grant_of_what_is_held() {
    fires(Rule::Exclusion, |story| {
        let holds = story.holds();
        let (held, end) = story.pick(holds)?;
        let at = held.returned + (end - held.returned) / 2;
        let (key, token) = (story.key(&held).to_owned(), story.greatest_token()? + 1);
        story.add(&key, Call::acquire(0, 9), at, at, Outcome::Granted { token, ends: None });
        Some(())
    });
}

#[test]
fn a_release_that_nobody_asked_for() {
    fires(Rule::Exclusion, |story| {
        let holds: Vec<Grant> = story.holds().iter().map(|(grant, _)| *grant).collect();
        let next_to = |held: &Grant| {
            let later = |next: &&Grant| {
                next.token > held.token && story.key(next) == story.key(held) && next.returned < held.ends
            };
            story.grants().iter().any(|grant| later(&grant))
        };
        let handed_on: Vec<Grant> = holds.into_iter().filter(next_to).collect();
        let held = story.pick(handed_on)?;
        story.history.ops.retain(|op| !matches!(op.call, Call::Release { token } if token == held.token));
        Some(())
    });
}

#[test]
fn a_ticket_that_claims_too_much() {
    fires(Rule::Overclaim, |story| {
        let grants = story.grants();
        let grant = story.pick(grants)?;
        let Call::Acquire { lease_secs, .. } = story.op(grant.place).call else { return None };
        let ends = Some(grant.returned + u64::from(lease_secs) * SECOND + 1);
        story.set_outcome(grant.place, Outcome::Granted { token: grant.token, ends });
        Some(())
    });
}

#[test]
fn not_held_for_a_live_lock() {
    fires(Rule::LostLock, |story| {
        let holds = story.holds();
        let (held, _) = story.pick(holds)?;
        let releases = story.releases(held.token);
        let [release] = releases[..] else { return None };
        let returned = story.op(release).returned.filter(|returned| returned.at < held.ends)?;
        (returned.outcome == Outcome::Released).then_some(())?;
        story.set_outcome(release, Outcome::NotHeld { retried: false });
        Some(())
    });
}

#[test]
fn not_held_before_it_is_released() {
    fires(Rule::LostLock, |story| {
        let grants = story.grants();
        let grant = story.pick(grants)?;
        let released = |op: &Op| op.outcome() == Some(Outcome::Released);
        let release =
            story.releases(grant.token).into_iter().find(|&place| released(&story.history.ops[place]))?;
        let at = story.op(release).invoked.checked_sub(2).filter(|at| *at >= grant.returned)?;
        let key = story.key(&grant).to_owned();
        story.add(
            &key,
            Call::Release { token: grant.token },
            at,
            at + 1,
            Outcome::NotHeld { retried: false },
        );
        Some(())
    });
}

#[test]
fn a_lock_released_twice() {
    fires(Rule::DoubleRelease, |story| {
        let released = story.places(|op| op.outcome() == Some(Outcome::Released));
        let place = story.pick(released)?;
        let mut again = story.op(place).clone();
        again.id += 1_000_000;
        again.invoked += story.random.random_range(0..=again.returned?.at - again.invoked);
        story.history.ops.push(again);
        Some(())
    });
}

#[test]
fn a_release_of_what_never_was_granted() {
    fires(Rule::PhantomRelease, |story| {
        let made_up = |op: &Op| matches!(op.call, Call::Release { token: 0..1000 }) && op.returned.is_some();
        let places = story.places(made_up);
        let place = story.pick(places)?;
        let key = story.op(place).key.clone();
        story.places(|op| op.key == key && Story::may_be_silent(op)).is_empty().then_some(())?;
        story.set_outcome(place, Outcome::Released);
        Some(())
    });
}

#[test]
fn a_release_under_a_token_of_the_far_future() {
    fires(Rule::PhantomRelease, |story| {
        let releases = story.places(|op| matches!(op.call, Call::Release { .. }) && op.returned.is_some());
        let place = story.pick(releases)?;
        let returned = story.op(place).returned?.at;
        story.grants().iter().any(|grant| grant.invoked > returned).then_some(())?;
        story.op(place).call = Call::Release { token: u64::MAX };
        story.set_outcome(place, Outcome::Released);
        Some(())
    });
}

#[test]
fn a_release_of_what_was_passed_on() {
    fires(Rule::PhantomRelease, |story| {
        let grants = story.grants();
        let stale = |op: &Op| {
            let Call::Release { token } = op.call else { return false };
            let is_later = |grant: &&Grant| grant.token > token && grant.returned < op.invoked;
            matches!(op.outcome(), Some(Outcome::NotHeld { .. }))
                && grants.iter().any(|grant| grant.token == token)
                && grants.iter().filter(is_later).any(|grant| story.key(grant) == op.key)
        };
        let places = story.places(stale);
        let place = story.pick(places)?;
        story.set_outcome(place, Outcome::Released);
        Some(())
    });
}

#[test]
fn a_release_long_after_the_lease() {
    fires(Rule::LateExpiry, |story| {
        let released = story.places(|op| op.outcome() == Some(Outcome::Released));
        let place = story.pick(released)?;
        let Call::Release { token } = story.op(place).call else { return None };
        let grant = story.grants().into_iter().find(|grant| grant.token == token)?;
        let Call::Acquire { lease_secs, .. } = story.op(grant.place).call else { return None };
        let over = grant.returned + u64::from(lease_secs) * SECOND + story.rules.late_expiry?;
        let release = story.op(place);
        (release.invoked, release.returned) =
            (over + 1, Some(Returned { at: over + 2, outcome: Outcome::Released }));
        Some(())
    });
}

#[test]
fn a_wait_that_ended_early() {
    fires(Rule::EarlyTimeout, |story| {
        let waited = |op: &Op| {
            op.outcome() == Some(Outcome::TimedOut) && matches!(op.call, Call::Acquire { wait_secs: 1.., .. })
        };
        let places = story.places(waited);
        let place = story.pick(places)?;
        let op = story.op(place);
        let Call::Acquire { wait_secs, .. } = op.call else { return None };
        op.returned.as_mut()?.at = op.invoked + u64::from(wait_secs) * SECOND - 1;
        Some(())
    });
}

/// Any answer of an acquire, too late by a nanosecond.
#[track_caller]
fn late(outcome: fn(Outcome) -> bool) {
    fires(Rule::LateAnswer, |story| {
        let places =
            story.places(|op| matches!(op.call, Call::Acquire { .. }) && op.outcome().is_some_and(outcome));
        let place = story.pick(places)?;
        let late = story.rules.late_answer?;
        let op = story.op(place);
        let Call::Acquire { wait_secs, .. } = op.call else { return None };
        op.returned.as_mut()?.at = op.invoked + u64::from(wait_secs) * SECOND + late + 1;
        Some(())
    });
}

#[test]
fn a_wait_that_ended_late() {
    late(|outcome| outcome == Outcome::TimedOut);
}

#[test]
fn a_grant_that_came_late() {
    late(|outcome| matches!(outcome, Outcome::Granted { .. }));
}

#[test]
fn a_refusal_that_came_late() {
    late(|outcome| outcome == Outcome::Busy);
}

#[test]
fn a_request_without_an_answer() {
    fires(Rule::NoAnswer, |story| {
        let died = |process| {
            let it = Event::Died { process };
            story.history.notes.iter().any(|note| note.event == it)
        };
        let places = story
            .places(|op| matches!(op.call, Call::Acquire { .. } | Call::Release { .. }) && !died(op.process));
        let place = story.pick(places)?;
        story.op(place).returned = None;
        Some(())
    });
}

#[test]
fn an_answer_that_answers_nothing() {
    fires(Rule::Stray, |story| {
        let event = Event::Stray { text: "T of somebody else".to_owned() };
        story.history.notes.push(Note { from: 1, to: 1, event });
        Some(())
    });
}

#[test]
fn a_refusal_for_no_reason() {
    fires(Rule::GroundlessBusy, |story| {
        let places = story
            .places(|op| matches!(op.call, Call::Acquire { cancelled: false, .. }) && op.returned.is_some());
        let place = story.pick(places)?;
        story.set_outcome(place, Outcome::Busy);
        Some(())
    });
}

#[test]
fn a_later_request_of_a_connection_served_first() {
    fires(Rule::Fifo, |story| {
        let grants = story.grants();
        let lane = |grant: &Grant| story.history.ops[grant.place].lane.unwrap();
        let swaps = |first: &Grant, second: &Grant| {
            first.token < second.token
                && story.key(first) == story.key(second)
                && lane(first).connection == lane(second).connection
        };
        let pairs: Vec<(Grant, Grant)> = grants
            .iter()
            .flat_map(|first| grants.iter().map(move |second| (*first, *second)))
            .filter(|(first, second)| swaps(first, second))
            .collect();
        let (first, second) = story.pick(pairs)?;
        let (early, late) = (story.op(first.place).lane, story.op(second.place).lane);
        story.op(first.place).lane = late;
        story.op(second.place).lane = early;
        Some(())
    });
}

#[test]
fn a_request_that_went_past_the_queue() {
    fires(Rule::Fifo, |story| {
        let grants = story.grants();
        let (past, waiting) = (story.pick(grants.clone())?, story.pick(grants)?);
        (past.token < waiting.token && story.key(&past) == story.key(&waiting)).then_some(())?;
        let seen = past.invoked - 1;
        let op = story.op(waiting.place);
        op.invoked = op.invoked.min(seen);
        let Call::Acquire { queued, .. } = &mut op.call else { return None };
        *queued = Some(seen);
        Some(())
    });
}

#[test]
fn a_free_key_that_is_refused() {
    fires(Rule::Stuck, |story| {
        let at = story.random.random_range(1000 * SECOND..1010 * SECOND);
        story.add("free", Call::acquire(0, 1), at, at + MS, Outcome::TimedOut);
        Some(())
    });
}

/// A grant that came to nothing with its leader has turned others away meanwhile, and
/// nobody else.
#[test]
fn a_free_key_that_is_refused_beside_a_grant_that_came_to_nothing() {
    let acquire = |id, invoked, outcome| Op {
        id,
        process: id,
        lane: None,
        key: "key".to_owned(),
        call: Call::acquire(0, 1),
        invoked,
        returned: Some(Returned { at: invoked + 2 * MS, outcome }),
    };
    let rules = Rules { busy: true, ..Rules::default() };
    for (refused_at, broken) in [(SECOND + MS, false), (SECOND + 3 * MS, true)] {
        let ops = vec![acquire(1, SECOND, Outcome::Busy), acquire(2, refused_at, Outcome::TimedOut)];
        let violations = check(&History { ops, notes: Vec::new() }, &rules);
        assert_eq!(
            violations.iter().any(|violation| violation.rule == Rule::Stuck),
            broken,
            "{violations:?}"
        );
    }
}

#[test]
fn a_free_key_that_is_waited_for() {
    for outcome in [Outcome::TimedOut, Outcome::Granted { token: 1 << 60, ends: None }] {
        fires(Rule::Stuck, |story| {
            let (at, late) = (1000 * SECOND, story.rules.late_answer?);
            (2 * late < 8 * SECOND).then_some(())?;
            story.add("free", Call::acquire(8, 1), at, at + 8 * SECOND, outcome);
            Some(())
        });
    }
}

#[test]
fn a_lock_that_nobody_passed_on() {
    fires(Rule::Stuck, |story| {
        let (at, late, expiry) = (5000 * SECOND, story.rules.late_answer?, story.rules.late_expiry?);
        let token = story.greatest_token()? + 1;
        story.add("late", Call::acquire(0, 9), at, at + 1, Outcome::Granted { token, ends: None });
        // The lease is over, and the next one got it later than that.
        let over = at + 1 + 9 * SECOND + expiry;
        let next = Outcome::Granted { token: token + 1, ends: None };
        story.add("late", Call::acquire(60, 1), at, over + late + 1, next);
        Some(())
    });
}

#[test]
fn a_verify_that_lied() {
    // It said no, and the lock is held after all.
    fires(Rule::Verdict, |story| {
        let places = story.places(|op| op.outcome() == Some(Outcome::NotAcquired));
        let place = story.pick(places)?;
        let (verify, token) = (story.op(place).clone(), story.greatest_token()? + 1);
        let at = verify.returned?.at + 1;
        story.add(&verify.key, verify.call, at, at + 1, Outcome::Granted { token, ends: None });
        Some(())
    });
    // It said no while the lock was held.
    fires(Rule::Verdict, |story| {
        let holds = story.holds();
        let (held, end) = story.pick(holds)?;
        (held.returned + 1 < end).then_some(())?;
        let op = story.op(held.place).clone();
        story.add(
            &op.key,
            Call::Verify { of: op.id },
            held.returned,
            held.returned + 1,
            Outcome::NotAcquired,
        );
        Some(())
    });
    // It said yes to what had been refused.
    fires(Rule::Verdict, |story| {
        let places = story.places(|op| matches!(op.outcome(), Some(Outcome::TimedOut | Outcome::Busy)));
        let place = story.pick(places)?;
        let (op, token) = (story.op(place).clone(), story.greatest_token()? + 1);
        let at = op.returned?.at + 1;
        story.add(&op.key, Call::Verify { of: op.id }, at, at + 1, Outcome::Granted { token, ends: None });
        Some(())
    });
}

#[test]
fn a_history_that_makes_no_sense() {
    fires(Rule::Malformed, |story| {
        let returned = story.places(|op| op.returned.is_some_and(|returned| returned.at > op.invoked));
        let place = story.pick(returned)?;
        let (at, ops) = (story.op(place).invoked - 1, story.history.ops.len());
        match story.random.random_range(0..4) {
            0 => story.op(place).returned.as_mut()?.at = at,
            1 => story.op(place).id = story.history.ops[(place + 1) % ops].id,
            2 => story.set_outcome(
                place,
                match story.history.ops[place].call {
                    Call::Acquire { .. } | Call::Verify { .. } => Outcome::Released,
                    Call::Release { .. } => Outcome::TimedOut,
                },
            ),
            _ => story.op(place).call = Call::Verify { of: u64::MAX },
        }
        (ops > 1).then_some(())
    });
}

#[test]
fn a_connection_may_be_known_for_some_requests_only() {
    let mut history = History::default();
    let op = |id, lane, token| Op {
        id,
        process: 0,
        lane,
        key: "k".to_owned(),
        call: Call::acquire(9, 1),
        invoked: SECOND,
        returned: Some(Returned { at: 5 * SECOND, outcome: Outcome::Granted { token, ends: Some(0) } }),
    };
    history.ops.push(op(1, None, 3));
    history.ops.push(op(2, Some(Lane { connection: 1, order: 1 }), 2));
    history.ops.push(op(3, Some(Lane { connection: 2, order: 0 }), 1));
    assert_eq!(check(&history, &Rules::default()), []);
}

/// What a person is shown.
#[test]
fn a_violation_tells_its_story() {
    let op = |id, call, invoked, at, outcome| Op {
        id,
        process: id,
        lane: Some(Lane { connection: 7, order: id }),
        key: "seat:12".to_owned(),
        call,
        invoked: invoked * MS,
        returned: Some(Returned { at: at * MS, outcome }),
    };
    let granted = |token| Outcome::Granted { token, ends: None };
    let mut history = History::default();
    history.ops.push(op(1, Call::acquire(5, 10), 100, 150, granted(41)));
    history.ops.push(op(2, Call::acquire(5, 10), 120, 300, granted(42)));
    history.ops.push(op(3, Call::Release { token: 40 }, 200, 210, Outcome::NotHeld { retried: false }));
    let text = "the leader was killed".to_owned();
    history.notes.push(Note { from: 250 * MS, to: 250 * MS, event: Event::Remark { text } });
    let violations = check(&history, &Rules::default());
    let [violation] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((violation.rule, &violation.ops[..]), (Rule::Exclusion, &[1, 2][..]));
    let story = "\
broken: one holder at a time, key \"seat:12\": token 42 was granted by 0.200000 s while token 41 was held until 9.950000 s
> 0.000000 s #1 process 1 connection 7 (1): acquire \"seat:12\" wait 5 s lease 10 s -> 0.050000 s granted, token 41
> 0.020000 s #2 process 2 connection 7 (2): acquire \"seat:12\" wait 5 s lease 10 s -> 0.200000 s granted, token 42
  0.100000 s #3 process 3 connection 7 (3): release \"seat:12\" token 40 -> 0.110000 s not held
  0.150000 s to 0.150000 s: the leader was killed
";
    assert_eq!(violation.to_string(), story);
}
