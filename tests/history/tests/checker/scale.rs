//! A million requests are judged in seconds.

use std::time::{Duration, Instant};

use ticketing_history::{Call, History, Op, Outcome, Returned, Rules, SECOND, check};

/// Locks handed from one to the next on a few hot keys and many cold ones, without a
/// pause, and many requests open at any time.
fn history(requests: u64) -> History {
    let mut history = History::default();
    for number in 0..requests / 2 {
        let granted = SECOND + number * 1000;
        let key = if number % 2 == 0 { format!("hot-{}", number % 16) } else { format!("cold-{number}") };
        let token = 1 + number;
        let mut add = |id, call, invoked, at, outcome| {
            let returned = Some(Returned { at, outcome });
            history.ops.push(Op {
                id,
                process: number % 100,
                lane: None,
                key: key.clone(),
                call,
                invoked,
                returned,
            });
        };
        let ends = Some(granted + 9 * SECOND);
        add(
            2 * number,
            Call::acquire(9, 10),
            granted - 900_000,
            granted + 1,
            Outcome::Granted { token, ends },
        );
        add(2 * number + 1, Call::Release { token }, granted + 500, granted + 900, Outcome::Released);
    }
    history
}

#[test]
fn a_million_requests() {
    let history = history(1_000_000);
    let start = Instant::now();
    assert_eq!(check(&history, &Rules::default()), []);
    let took = start.elapsed();
    println!("{took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_million_requests_of_a_broken_service() {
    let mut history = history(1_000_000);
    for op in &mut history.ops {
        if let Some(Returned { outcome: Outcome::Granted { token, .. }, .. }) = &mut op.returned {
            *token = 1 + *token * 7 % 1000;
        }
    }
    let start = Instant::now();
    let violations = check(&history, &Rules::default());
    let took = start.elapsed();
    println!("{} violations in {took:?}", violations.len());
    assert!(violations.len() > 50);
    assert!(took < Duration::from_secs(60), "{took:?}");
}
