//! What a function returns: 0, or why not.

use std::ffi::{CStr, c_char, c_int};

use ticketing::ErrorKind;

/// All is well.
pub const TICKETING_OK: c_int = 0;
/// The wait ran out in the queue. The lock was not acquired.
pub const TICKETING_TIMEOUT: c_int = 1;
/// The server said no: it is at a limit, or does not lead now. Not acquired.
pub const TICKETING_BUSY: c_int = 2;
/// Nothing was sent: no usable connection in time. Not acquired.
pub const TICKETING_NOT_CONNECTED: c_int = 3;
/// The acquire was sent and its outcome is unknown. Do not enter the critical section;
/// ticketing_uncertain_keep and ticketing_verify can clear it up.
pub const TICKETING_INDETERMINATE: c_int = 4;
/// The lock came with too little of its lease left, and was released.
pub const TICKETING_INSUFFICIENT_LEASE: c_int = 5;
/// Not held under that token: the lease ran out, or it was released before.
pub const TICKETING_NOT_HELD: c_int = 6;
/// The release was not confirmed in time. The lease will end the lock.
pub const TICKETING_RELEASE_UNCONFIRMED: c_int = 7;
/// The server refused the token.
pub const TICKETING_AUTH: c_int = 8;
/// TLS could not be set up, or the certificate is not trusted.
pub const TICKETING_TLS: c_int = 9;
/// The server belongs to another fencing domain than the expected one.
pub const TICKETING_WRONG_DOMAIN: c_int = 10;
/// An argument breaks a rule; nothing was sent.
pub const TICKETING_INVALID_INPUT: c_int = 11;
/// Too many requests are pending in this client; nothing was sent.
pub const TICKETING_CLIENT_CAPACITY: c_int = 12;
/// The broker is closed.
pub const TICKETING_CLOSED: c_int = 13;
/// The server does not speak the protocol extension that this needs.
pub const TICKETING_UNSUPPORTED: c_int = 14;
/// The acquire that was verified did not get the lock, and never will.
pub const TICKETING_NOT_ACQUIRED: c_int = 30;
/// The call was cancelled. A grant that comes all the same is given back.
pub const TICKETING_CANCELLED: c_int = 31;
/// A pointer or a handle that must be there is NULL or zero.
pub const TICKETING_NULL_ARGUMENT: c_int = 32;
/// The handle was freed, or is over, or never was one.
pub const TICKETING_STALE_HANDLE: c_int = 33;
/// A callback may not wait for a broker: all its connections would stand still.
pub const TICKETING_WOULD_DEADLOCK: c_int = 34;
/// The handle came into this process by fork. Open a new broker here.
pub const TICKETING_FORKED: c_int = 35;
/// The buffer is too small; it was told how large it must be.
pub const TICKETING_BUFFER_TOO_SMALL: c_int = 36;
/// A mistake in this library. If it was an acquire, its outcome is unknown.
pub const TICKETING_PANIC: c_int = 37;

pub(crate) fn of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Timeout => TICKETING_TIMEOUT,
        ErrorKind::Busy => TICKETING_BUSY,
        ErrorKind::NotConnected => TICKETING_NOT_CONNECTED,
        ErrorKind::Indeterminate => TICKETING_INDETERMINATE,
        ErrorKind::InsufficientLease => TICKETING_INSUFFICIENT_LEASE,
        ErrorKind::NotHeld => TICKETING_NOT_HELD,
        ErrorKind::ReleaseUnconfirmed => TICKETING_RELEASE_UNCONFIRMED,
        ErrorKind::Auth => TICKETING_AUTH,
        ErrorKind::Tls => TICKETING_TLS,
        ErrorKind::WrongDomain => TICKETING_WRONG_DOMAIN,
        ErrorKind::InvalidInput => TICKETING_INVALID_INPUT,
        ErrorKind::ClientCapacity => TICKETING_CLIENT_CAPACITY,
        ErrorKind::Closed => TICKETING_CLOSED,
        ErrorKind::Unsupported => TICKETING_UNSUPPORTED,
    }
}

/// The name that every language shares, and a sentence.
fn words(status: c_int) -> (&'static CStr, &'static CStr) {
    match status {
        TICKETING_OK => (c"ok", c"all is well"),
        TICKETING_TIMEOUT => (c"timeout", c"the wait ran out in the queue; not acquired"),
        TICKETING_BUSY => (c"busy", c"the server is at a limit or does not lead now; not acquired"),
        TICKETING_NOT_CONNECTED => (c"not_connected", c"no usable connection in time; nothing was sent"),
        TICKETING_INDETERMINATE => (
            c"indeterminate",
            c"the acquire was sent and its outcome is unknown; the critical section is off limits",
        ),
        TICKETING_INSUFFICIENT_LEASE => {
            (c"insufficient_lease", c"the lock came with too little of its lease left, and was released")
        }
        TICKETING_NOT_HELD => {
            (c"not_held", c"not held under that token: the lease ran out, or it was released before")
        }
        TICKETING_RELEASE_UNCONFIRMED => {
            (c"release_unconfirmed", c"the release was not confirmed in time; the lease will end the lock")
        }
        TICKETING_AUTH => (c"auth", c"the server refused the token"),
        TICKETING_TLS => (c"tls", c"TLS could not be set up, or the certificate is not trusted"),
        TICKETING_WRONG_DOMAIN => (c"wrong_domain", c"the server belongs to another fencing domain"),
        TICKETING_INVALID_INPUT => (c"invalid_input", c"an argument breaks a rule; nothing was sent"),
        TICKETING_CLIENT_CAPACITY => {
            (c"client_capacity", c"too many requests are pending in this client; nothing was sent")
        }
        TICKETING_CLOSED => (c"closed", c"the broker is closed"),
        TICKETING_UNSUPPORTED => (c"unsupported", c"the server does not speak extension 1 of the protocol"),
        TICKETING_NOT_ACQUIRED => (c"not_acquired", c"the lock was not acquired, and never will be"),
        TICKETING_CANCELLED => (c"cancelled", c"the call was cancelled"),
        TICKETING_NULL_ARGUMENT => (c"null_argument", c"a pointer or a handle is NULL or zero"),
        TICKETING_STALE_HANDLE => (c"stale_handle", c"the handle was freed, is over, or never was one"),
        TICKETING_WOULD_DEADLOCK => (c"would_deadlock", c"a callback may not wait for a broker"),
        TICKETING_FORKED => (c"forked", c"the handle belongs to the parent process; open a new broker here"),
        TICKETING_BUFFER_TOO_SMALL => (c"buffer_too_small", c"the buffer is too small"),
        TICKETING_PANIC => (c"panic", c"a mistake in the ticketing library"),
        _ => (c"unknown", c"no status of this version of ticketing"),
    }
}

/// The sentence of a status, for people. Never NULL; lives as long as the process.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub extern "C" fn ticketing_strerror(status: c_int) -> *const c_char {
    words(status).1.as_ptr()
}

/// The name of a status that every language shares, such as "not_connected".
/// Never NULL; lives as long as the process.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub extern "C" fn ticketing_status_name(status: c_int) -> *const c_char {
    words(status).0.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_status_with_the_shared_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(words(of(kind)).0.to_str(), Ok(kind.as_str()));
        }
    }
}
