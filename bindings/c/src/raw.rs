//! Arguments as C passes them.

#![allow(unsafe_code, reason = "pointers of the caller are followed here")]

use std::ffi::{CStr, c_char};
use std::slice;
use std::time::Duration;

use ticketing_protocol::limits::MAX_KEY_BYTES;

use crate::failure::Failure;

/// More is no certificate and no secret, but a length that was never set.
const MAX_BYTES: usize = 16 << 20;

/// Where a result goes: zero until there is one.
pub(crate) struct Out<T>(*mut T);

impl<T: Default> Out<T> {
    /// # Safety
    /// The pointer is NULL or can be written until the call is over.
    pub(crate) unsafe fn new(to: *mut T, name: &str) -> Result<Self, Failure> {
        if to.is_null() {
            return Err(Failure::null(name));
        }
        let out = Self(to);
        out.set(T::default());
        Ok(out)
    }

    pub(crate) fn set(&self, value: T) {
        // SAFETY: not NULL, and can be written: see `new`.
        unsafe { self.0.write_unaligned(value) }
    }
}

/// Bytes with a length. NULL is no bytes.
///
/// # Safety
/// They can be read for as long as the result is used.
pub(crate) unsafe fn bytes<'a>(from: *const u8, len: usize, name: &str) -> Result<&'a [u8], Failure> {
    match (from.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::null(name)),
        (false, len) if len > MAX_BYTES => {
            Err(Failure::invalid(format!("{name} has {len} bytes; at most {MAX_BYTES} are read")))
        }
        // SAFETY: not NULL, and the caller says that it has so many bytes.
        (false, len) => Ok(unsafe { slice::from_raw_parts(from, len) }),
    }
}

/// A key. A longer one than is legal is not even looked at, so a length that is
/// wrong by much reads no foreign memory.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn key<'a>(from: *const c_char, len: usize) -> Result<&'a str, Failure> {
    if len > MAX_KEY_BYTES {
        return Err(Failure::invalid(format!(
            "the key has {len} bytes; at most {MAX_KEY_BYTES} are allowed"
        )));
    }
    if from.is_null() {
        return Err(Failure::null("key"));
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { bytes(from.cast(), len, "key") }?;
    str::from_utf8(bytes).map_err(|error| {
        Failure::invalid(format!("the key is not valid UTF-8 at offset {}", error.valid_up_to()))
    })
}

/// Text up to its NUL; `None` for NULL.
///
/// # Safety
/// NULL, or a text with its NUL that lives as long as the result is used.
pub(crate) unsafe fn text<'a>(from: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(from) }.to_str();
    text.map(Some).map_err(|_| Failure::invalid(format!("{name} is not valid UTF-8")))
}

/// Seconds as a duration, rounded up to a nanosecond, so that the core can round up to a
/// second. What is too long to count is the longest there is, which the core
/// refuses where it matters.
pub(crate) fn seconds(secs: f64, name: &str) -> Result<Duration, Failure> {
    if !secs.is_finite() || secs < 0.0 {
        return Err(Failure::invalid(format!("{name} is {secs}; it must be a number of seconds, 0 or more")));
    }
    let nearest = Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX);
    Ok(if nearest.as_secs_f64() < secs { nearest.saturating_add(Duration::from_nanos(1)) } else { nearest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{TICKETING_INVALID_INPUT, TICKETING_NULL_ARGUMENT};

    #[test]
    fn seconds_are_never_clamped_and_never_shortened() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.001, -1.0] {
            assert_eq!(
                seconds(bad, "wait").err().map(|failure| failure.status),
                Some(TICKETING_INVALID_INPUT)
            );
        }
        assert_eq!(seconds(1e300, "wait").ok(), Some(Duration::MAX));
        assert_eq!(seconds(-0.0, "wait").ok(), Some(Duration::ZERO));
        for given in [1e-12, 0.1, 1.000_000_000_1, 250.0] {
            let read = seconds(given, "wait").ok().unwrap_or_default();
            assert!(read.as_secs_f64() >= given, "{given}");
        }
    }

    #[test]
    fn a_key_whose_length_is_wrong_is_not_read() {
        let status = |from: *const c_char, len| {
            // SAFETY: one byte; what is longer than a key is not followed.
            unsafe { key(from, len) }.err().map(|failure| failure.status)
        };
        let one = c"k".as_ptr();
        assert_eq!(status(one, 1), None);
        for len in [MAX_KEY_BYTES + 1, usize::MAX, isize::MAX as usize] {
            assert_eq!(status(one, len), Some(TICKETING_INVALID_INPUT));
        }
        assert_eq!(status(std::ptr::null(), 0), Some(TICKETING_NULL_ARGUMENT));
        assert_eq!(status(c"\xff".as_ptr(), 1), Some(TICKETING_INVALID_INPUT));
    }
}
