//! The one clock of all that is recorded.

use rustix::time::{ClockId, clock_gettime};
use ticketing_history::{Nanos, SECOND};

/// Now, on the clock that client and server count leases by.
#[must_use]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).expect("a time since boot");
    part(time.tv_sec) * SECOND + part(time.tv_nsec)
}
