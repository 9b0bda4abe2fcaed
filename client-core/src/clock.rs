//! The clock of every deadline: nanoseconds that never go back and that go on
//! while the machine sleeps, as the server's clock of a lease does.
//!
//! `Instant` stops during a suspend on Linux, and a ticket that slept through
//! the end of its lease would still look good.

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Now, in nanoseconds since an arbitrary moment before this process began.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The clock counts from boot: neither part is negative.
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * SECOND + part(time.tv_nsec)
}

/// Now, in nanoseconds since an arbitrary moment of this process.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // Deadlines are also counted backwards from now, so zero is not the start.
    nanos(START.get_or_init(Instant::now).elapsed()).saturating_add(3600 * SECOND)
}

/// A duration in nanoseconds; what does not fit in 584 years counts as that.
pub(crate) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
