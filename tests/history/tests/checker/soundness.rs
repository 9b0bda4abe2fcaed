//! A correct service is never accused.

use ticketing_history::{Rules, Summary, check};

use crate::world::Setting;

const HISTORIES: u64 = 10_000;

#[test]
fn ten_thousand_correct_histories_pass() {
    let mut sums = Summary::default();
    for seed in 0..HISTORIES {
        let setting = Setting::of(seed);
        let history = setting.run();
        let violations = check(&history, &setting.rules());
        assert!(violations.is_empty(), "{setting:?}\n{}", violations[0]);
        let summary = history.summary();
        sums.acquires += summary.acquires;
        sums.granted += summary.granted;
        sums.timed_out += summary.timed_out;
        sums.busy += summary.busy;
        sums.given_back += summary.given_back;
        sums.released += summary.released;
        sums.not_held += summary.not_held;
        sums.not_acquired += summary.not_acquired;
        sums.indeterminate += summary.indeterminate;
        sums.unconfirmed += summary.unconfirmed;
        sums.unreturned += summary.unreturned;
    }
    let Summary { granted, timed_out, busy, given_back, released, not_held, .. } = sums;
    let Summary { not_acquired, indeterminate, unconfirmed, unreturned, .. } = sums;
    for often in [granted, timed_out, busy, given_back, released, not_held] {
        assert!(often > 10_000, "{sums:?}");
    }
    for seldom in [not_acquired, indeterminate, unconfirmed, unreturned] {
        assert!(seldom > 1000, "{sums:?}");
    }
}

/// The histories are as late as their settings allow, so the bounds are put to the test.
#[test]
fn tighter_bounds_are_broken() {
    let broken = |tighten: fn(&mut Rules, &Setting)| {
        let broken = (0..500).filter(|&seed| {
            let setting = Setting { trouble: 40, ..Setting::of(seed) };
            let mut rules = setting.rules();
            tighten(&mut rules, &setting);
            !check(&setting.run(), &rules).is_empty()
        });
        broken.count()
    };
    let answers = broken(|rules, setting| rules.late_answer = Some(2 * setting.delay));
    let expiries = broken(|rules, _| rules.late_expiry = Some(0));
    let refusals = broken(|rules, _| rules.busy = false);
    assert!(answers > 0 && expiries > 0 && refusals > 0, "{answers}, {expiries}, {refusals}");
}
