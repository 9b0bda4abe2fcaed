//! The oracle, seen to fail: each history breaks one promise.

use std::time::{Duration, Instant};

use super::*;

/// A history is told in milliseconds.
struct Story {
    start: Instant,
    session: Session,
}

impl Story {
    fn new() -> Self {
        Self { start: Instant::now(), session: Session::default() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// An acquire of "k" with a wait of `wait` and a lease of `lease` seconds.
    fn acquire(mut self, wait: u8, lease: u8, sent: u64, outcome: Option<(Outcome, u64)>) -> Self {
        let owner = self.session.acquires.len() as u64;
        let outcome = outcome.map(|(outcome, ms)| (outcome, self.at(ms)));
        let acquire = Acquire {
            key: b"k".to_vec(),
            owner,
            wait_secs: wait,
            lease_secs: lease,
            sent: self.at(sent),
            cancelled: false,
            outcome,
        };
        self.session.acquires.push(acquire);
        self
    }

    fn granted(self, sent: u64, token: u64, received: u64) -> Self {
        self.acquire(5, 10, sent, Some((Outcome::Granted(token), received)))
    }

    fn release(mut self, token: u64, sent: u64, outcome: Option<(bool, u64)>) -> Self {
        let outcome = outcome.map(|(confirmed, ms)| (confirmed, self.at(ms)));
        self.session.releases.push(Release { key: b"k".to_vec(), token, sent: self.at(sent), outcome });
        self
    }

    /// What is sent from here on comes over another connection.
    fn and(self, other: impl FnOnce(Self) -> Self) -> [Session; 2] {
        let other = other(Self { start: self.start, session: Session::default() });
        [self.session, other.session]
    }
}

#[track_caller]
fn broken(sessions: &[Session], expect: Expect, rules: &[&str]) {
    let found = check(sessions, expect).expect_err("a broken promise");
    assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), rules, "{found:#?}");
}

#[test]
fn an_honest_history_passes() {
    let story = Story::new().granted(0, 1, 10).release(1, 20, Some((true, 30)));
    let sessions = story.release(1, 40, Some((false, 50))).and(|other| {
        other.granted(5, 2, 25).acquire(0, 10, 26, Some((Outcome::TimedOut, 27))).acquire(
            1,
            10,
            30,
            Some((Outcome::TimedOut, 1031)),
        )
    });
    let summary = check(&sessions, Expect { busy: false, dense: true }).unwrap();
    let expected = Summary { granted: 2, timed_out: 2, released: 1, not_held: 1, ..Summary::default() };
    assert_eq!(summary, expected);
}

#[test]
fn a_missing_or_needless_answer_is_seen() {
    let silent = Story::new().acquire(1, 10, 0, None).release(7, 0, None).session;
    let mut hung_up = silent.clone();
    hung_up.cut_short = true;
    assert_eq!(check(&[hung_up], Expect::default()).unwrap().unanswered, 1);
    let mut stray = Session::default();
    stray.strays.push(ticketing_test_support::Reply::timed_out(1, "k"));
    broken(
        &[silent, stray],
        Expect::default(),
        &["every acquire is answered", "every release is answered", "an answer answers an open request"],
    );
}

#[test]
fn two_holders_are_seen() {
    let first = Story::new().granted(0, 1, 10).release(1, 100, Some((true, 110)));
    broken(&first.and(|other| other.granted(5, 2, 99)), Expect::default(), &["one holder at a time"]);
    // Nobody released, but the lease of ten seconds is not over.
    let first = Story::new().granted(0, 1, 10);
    broken(&first.and(|other| other.granted(5, 2, 9_999)), Expect::default(), &["one holder at a time"]);
    let first = Story::new().granted(0, 1, 10);
    check(&first.and(|other| other.granted(5_001, 2, 10_000)), Expect::default()).unwrap();
}

#[test]
fn bad_tokens_are_seen() {
    let first = Story::new().granted(0, 5, 10).release(5, 20, Some((true, 30)));
    broken(
        &first.and(|other| other.granted(40, 5, 50)),
        Expect::default(),
        &["a token is given out once", "tokens grow in real time"],
    );
    let first = Story::new().granted(0, 5, 10).release(5, 20, Some((true, 30)));
    broken(
        &first.and(|other| other.granted(40, 4, 50)),
        Expect::default(),
        &["tokens grow in real time", "one holder at a time"],
    );
    let first = Story::new().granted(0, 5, 10).release(5, 20, Some((true, 30)));
    broken(
        &first.and(|other| other.granted(40, 7, 50)),
        Expect { dense: true, ..Expect::default() },
        &["tokens have no gap"],
    );
}

#[test]
fn unfair_queues_are_seen() {
    let story = Story::new().granted(0, 2, 30).granted(1, 1, 10).release(1, 15, Some((true, 25)));
    broken(&[story.session], Expect::default(), &["first in, first out"]);
}

#[test]
fn broken_waits_are_seen() {
    let early = Story::new().acquire(1, 10, 0, Some((Outcome::TimedOut, 999)));
    broken(&[early.session], Expect::default(), &["a wait never ends early"]);
    let late = Story::new().acquire(1, 10, 0, Some((Outcome::TimedOut, 17_000)));
    broken(&[late.session], Expect::default(), &["an answer comes within the wait"]);
    let busy = || Story::new().acquire(1, 10, 0, Some((Outcome::Busy, 1))).session;
    broken(&[busy()], Expect::default(), &["busy has a cause"]);
    check(&[busy()], Expect { busy: true, ..Expect::default() }).unwrap();
    let refused = Story::new().acquire(0, 10, 0, Some((Outcome::TimedOut, 1)));
    broken(&[refused.session], Expect::default(), &["a free key is granted"]);
    let freed = Story::new().granted(0, 1, 1).release(1, 2, Some((true, 3)));
    let refused = freed.acquire(0, 10, 4, Some((Outcome::TimedOut, 5)));
    broken(&[refused.session], Expect::default(), &["a free key is granted"]);
}

#[test]
fn dishonest_releases_are_seen() {
    let lost = Story::new().granted(0, 1, 10).release(1, 20, Some((false, 30)));
    broken(&[lost.session], Expect::default(), &["a held lock is never lost"]);
    let expired = Story::new().granted(0, 1, 10).release(1, 9_990, Some((false, 10_000)));
    check(&[expired.session], Expect::default()).unwrap();
    let twice =
        Story::new().granted(0, 1, 10).release(1, 20, Some((true, 30))).release(1, 21, Some((true, 30)));
    broken(&[twice.session], Expect::default(), &["a lock is released once"]);
    let invented = Story::new().release(9, 20, Some((true, 30)));
    broken(&[invented.session], Expect::default(), &["only a grant can be released"]);
}
