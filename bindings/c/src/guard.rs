//! What every exported function goes through.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

use ticketing::embed::block_on;

use crate::failure::Failure;
use crate::last;
use crate::status::{TICKETING_OK, TICKETING_WOULD_DEADLOCK};

thread_local! {
    /// Whether a callback runs on this thread.
    static CALLED_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Does the work of a call and gives its status. A panic is one, too.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match caught(work) {
        Ok(()) => TICKETING_OK,
        Err(failure) => last::set(failure),
    }
}

/// Turns a panic into a failure.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Its drop could panic again.
        std::mem::forget(payload);
        Err(Failure::panicked())
    })
}

/// Whether a callback runs on this thread, so that nothing may wait.
pub(crate) fn is_called_back() -> bool {
    CALLED_BACK.get()
}

/// Runs a callback of the user.
pub(crate) fn calling_back(callback: impl FnOnce()) {
    let outer = CALLED_BACK.replace(true);
    callback();
    CALLED_BACK.set(outer);
}

/// # Errors
/// In a callback, on which every connection of its broker waits.
pub(crate) fn may_wait() -> Result<(), Failure> {
    if is_called_back() {
        let message = "a callback may not wait for a broker; start a call there, or wait elsewhere";
        return Err(Failure::new(TICKETING_WOULD_DEADLOCK, message));
    }
    Ok(())
}

/// Waits on this thread for a future of a broker.
pub(crate) fn wait<F: Future>(future: F) -> Result<F::Output, Failure> {
    may_wait()?;
    Ok(block_on(future))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]

    use super::*;
    use crate::status::TICKETING_PANIC;

    #[test]
    fn a_panic_is_a_status() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in the drop of a payload");
            }
        }
        assert_eq!(guarded(|| panic!("on purpose")), TICKETING_PANIC);
        assert_eq!(guarded(|| panic::panic_any(Bomb)), TICKETING_PANIC);
        assert_eq!(guarded(|| Ok(())), TICKETING_OK);
    }

    #[test]
    fn a_callback_cannot_wait() {
        calling_back(|| {
            assert_eq!(wait(async {}).unwrap_err().status, TICKETING_WOULD_DEADLOCK);
        });
        assert!(wait(async {}).is_ok());
    }
}
