//! The clock of leases and waits.

use ticketing_engine::Nanos;

/// A monotonic clock, as a value so that a test can put its own in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(fn() -> Nanos);

impl Clock {
    /// The system's clock that goes on during suspend: a lease runs out while
    /// the machine sleeps too.
    pub(crate) const SYSTEM: Self = Self(system);

    #[cfg(test)]
    pub(crate) const fn of(read: fn() -> Nanos) -> Self {
        Self(read)
    }

    pub(crate) fn now(self) -> Nanos {
        (self.0)()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither part of a time since boot is ever negative.
    let part = |value: i64| Nanos::try_from(value).unwrap_or(0);
    part(time.tv_sec) * ticketing_engine::SECOND + part(time.tv_nsec)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system() -> Nanos {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Nanos::try_from(START.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
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
}
