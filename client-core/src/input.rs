//! The rules of arguments, checked before anything is sent. Nothing is clamped;
//! only fractions of a second are rounded up, since the wire has whole ones.

use std::time::Duration;

use ticketing_protocol::Key;
use ticketing_protocol::limits::LEASE_SECS;

use crate::AcquireOptions;
use crate::clock::nanos;
use crate::error::Invalid;
use crate::session::COUNTED_PER_MILLE;

/// What an acquire asks for, in the units of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) wait_secs: u8,
    pub(crate) lease_secs: u8,
    /// In nanoseconds.
    pub(crate) min_remaining: u64,
}

impl Wish {
    /// For an acquire that is refused.
    pub(crate) const NONE: Self = Self { wait_secs: 0, lease_secs: 0, min_remaining: 0 };

    pub(crate) fn check(options: &AcquireOptions) -> Result<Self, Invalid> {
        let AcquireOptions { wait, lease, min_remaining } = *options;
        // A byte on the wire, of which every value is legal.
        let wait_secs = whole_secs(wait).ok_or(Invalid::Wait(wait))?;
        let lease_secs =
            whole_secs(lease).filter(|secs| LEASE_SECS.contains(secs)).ok_or(Invalid::Lease(lease))?;
        let min_remaining = min_remaining.unwrap_or_default();
        // What is left of a fresh lease, had its grant come in no time at all.
        let most = Duration::from_millis(u64::from(lease_secs) * COUNTED_PER_MILLE);
        if min_remaining >= most {
            return Err(Invalid::MinRemaining { min_remaining, lease, most });
        }
        Ok(Self { wait_secs, lease_secs, min_remaining: nanos(min_remaining) })
    }
}

pub(crate) fn check_key(key: &str) -> Result<(), Invalid> {
    Key::new(key).map(drop).map_err(Invalid::Key)
}

fn whole_secs(duration: Duration) -> Option<u8> {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().checked_add(up).and_then(|secs| u8::try_from(secs).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(wait: f64, lease: f64) -> Result<(u8, u8), Invalid> {
        let options = AcquireOptions {
            wait: Duration::from_secs_f64(wait),
            lease: Duration::from_secs_f64(lease),
            min_remaining: None,
        };
        Wish::check(&options).map(|wish| (wish.wait_secs, wish.lease_secs))
    }

    #[test]
    fn fractions_are_rounded_up() {
        for (wait, lease, expected) in [
            (0.0, 1.0, (0, 1)),
            (0.001, 0.5, (1, 1)),
            (254.5, 249.1, (255, 250)),
            (255.0, 250.0, (255, 250)),
            (1.000_000_001, 1.000_000_001, (2, 2)),
        ] {
            assert_eq!(wish(wait, lease).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused_and_never_clamped() {
        for lease in [0.0, 250.1, 251.0, 256.0, 1e9] {
            assert!(matches!(wish(1.0, lease), Err(Invalid::Lease(_))), "{lease}");
        }
        for wait in [255.1, 256.0, 1e9] {
            assert!(matches!(wish(wait, 1.0), Err(Invalid::Wait(_))), "{wait}");
        }
        let longest = AcquireOptions { wait: Duration::MAX, ..AcquireOptions::default() };
        assert!(matches!(Wish::check(&longest), Err(Invalid::Wait(_))));
        // Half a percent of a lease is never counted on; the lease is that of the wire.
        let wanting = |min_remaining| AcquireOptions {
            lease: Duration::from_millis(1_500),
            min_remaining: Some(min_remaining),
            ..AcquireOptions::default()
        };
        for too_much in [1_990, 1_995, 2_000, 2_001] {
            let refused = Wish::check(&wanting(Duration::from_millis(too_much)));
            assert!(matches!(refused, Err(Invalid::MinRemaining { .. })), "{refused:?}");
        }
        let most = Duration::from_millis(1_990) - Duration::from_nanos(1);
        assert_eq!(Wish::check(&wanting(most)).map(|wish| wish.min_remaining).ok(), Some(1_989_999_999));
    }

    #[test]
    fn the_broken_rule_of_a_key_is_named() {
        for (key, rule) in [("", "empty"), ("a b", "0x20"), ("a\n", "0x0a"), (&"k".repeat(129), "129 bytes")]
        {
            let text = check_key(key).unwrap_err().to_string();
            assert!(text.contains(rule), "{text}");
        }
    }
}
