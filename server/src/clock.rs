//! The clock of leases and waits.

use ticketing_engine::{Nanos, SECOND};

/// What the clock shows when a machine has just booted. What other nodes tell of
/// happened before that, and a lease of 250 seconds or a tombstone of ten minutes of
/// which nothing is to be lost lies that far back.
const AT_BOOT: Nanos = 1_000 * SECOND;

/// A monotonic clock, as a value so that a test can put its own in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(fn() -> Nanos);

impl Clock {
    /// The system's clock that goes on during suspend: a lease runs out while
    /// the machine sleeps too.
    pub(crate) const SYSTEM: Self = Self(|| AT_BOOT + since_boot());

    #[cfg(test)]
    pub(crate) const fn of(read: fn() -> Nanos) -> Self {
        Self(read)
    }

    pub(crate) fn now(self) -> Nanos {
        (self.0)()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither part of a time since boot is ever negative.
    let part = |value: i64| Nanos::try_from(value).unwrap_or(0);
    part(time.tv_sec) * SECOND + part(time.tv_nsec)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_boot() -> Nanos {
    use std::sync::LazyLock;
    use std::time::Instant;

    // A boot is as good as any other moment that lies behind.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Nanos::try_from(START.elapsed().as_nanos()).unwrap_or(Nanos::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let before = Clock::SYSTEM.now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(Clock::SYSTEM.now() >= before + 2_000_000);
    }

    #[test]
    fn on_a_machine_that_has_just_booted_nothing_lies_before_its_beginning() {
        let longest_remembered = 10 * 60 * SECOND;
        assert!(Clock::SYSTEM.now() - since_boot() > longest_remembered);
    }
}
