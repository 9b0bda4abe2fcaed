//! True time, which only the simulation knows, and the clocks that processes read.

/// True time, in nanoseconds from the start of a run.
pub(crate) type Time = u64;

pub(crate) const MICROSECOND: Time = 1_000;
pub(crate) const MILLISECOND: Time = 1_000_000;
pub(crate) const SECOND: Time = 1_000_000_000;
pub(crate) const MINUTE: Time = 60 * SECOND;

const MILLION: u64 = 1_000_000;

/// The clock of one machine: it starts anywhere and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it showed at `since`.
    shown: u64,
    since: Time,
    /// How much it shows in a million nanoseconds.
    rate: u64,
}

impl Clock {
    /// A clock that shows `shown` at `since` and is `drift_ppm` millionths fast.
    pub(crate) const fn new(shown: u64, since: Time, drift_ppm: i32) -> Self {
        Self { shown, since, rate: MILLION.saturating_add_signed(drift_ppm as i64) }
    }

    /// What it shows.
    pub(crate) fn at(&self, time: Time) -> u64 {
        self.shown + scaled(time.saturating_sub(self.since), self.rate, MILLION)
    }

    /// The first moment at which it shows `local` or more.
    pub(crate) fn when(&self, local: u64) -> Time {
        let passed = local.saturating_sub(self.shown);
        self.since.saturating_add(scaled(passed, MILLION, self.rate)) + u64::from(self.rounds_down(passed))
    }

    fn rounds_down(&self, passed: u64) -> bool {
        scaled(scaled(passed, MILLION, self.rate), self.rate, MILLION) < passed
    }
}

/// `number * by / per`, rounded down.
fn scaled(number: u64, by: u64, per: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(by) / u128::from(per)).unwrap_or(u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_it_should_from_the_first_moment_at_which_it_does() {
        for drift in [-10_000, -333, 0, 1, 2_500, 10_000] {
            let clock = Clock::new(7 * SECOND, 5 * SECOND, drift);
            for ahead in [0, 1, 2, 3, 999, MILLISECOND + 1, SECOND, 250 * SECOND + 17, 300 * MINUTE] {
                let local = 7 * SECOND + ahead;
                let when = clock.when(local);
                assert!(clock.at(when) >= local, "drift {drift}, {ahead} ns ahead");
                assert!(when == clock.since || clock.at(when - 1) < local, "drift {drift}, {ahead} ns ahead");
            }
        }
    }
}
