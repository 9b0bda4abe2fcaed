//! Clearing up an acquire whose answer was lost.

#![allow(unsafe_code, reason = "exported, with pointers of the caller")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ticketing::Verdict;
use ticketing::embed::Embedded;

use crate::call::{Callback, Done, start};
use crate::failure::{About, Failure};
use crate::guard::{guarded, wait};
use crate::raw::{Out, seconds};
use crate::registry::{CallHandle, TicketHandle, UncertainHandle, here};
use crate::status::{TICKETING_CLOSED, TICKETING_NOT_ACQUIRED};
use crate::ticket::keep;

/// Asks the leading server, for up to timeout seconds, how an acquire went whose outcome is
/// unknown. TICKETING_OK: the lock is held, and *ticket is it; it ends by the lease of the
/// original acquire. TICKETING_NOT_ACQUIRED: it is not, and never will be.
/// TICKETING_INDETERMINATE: nobody could say, and it can be asked again. The handle stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_verify(
    uncertain: UncertainHandle,
    timeout: f64,
    ticket: *mut TicketHandle,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL, or room for a handle.
        let out = unsafe { Out::new(ticket, "ticket") }?;
        let (about, broker) = find(uncertain)?;
        let verdict = wait(about.error.verify(seconds(timeout, "timeout")?))?;
        out.set(settle(verdict.map_err(|error| Failure::told(error, &broker))?, &broker)?);
        Ok(())
    })
}

/// Starts to ask and returns at once; done is called with the outcome. call may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_verify_start(
    uncertain: UncertainHandle,
    timeout: f64,
    done: Done,
    user_data: *mut c_void,
    call: *mut CallHandle,
) -> c_int {
    guarded(|| {
        let callback = Callback::new(done, user_data)?;
        let (about, broker) = find(uncertain)?;
        let timeout = seconds(timeout, "timeout")?;
        let verify = async move { about.error.verify(timeout).await };
        // SAFETY: NULL, or room for a handle.
        unsafe { start(&broker, verify, None, settle, callback, call) }
    })
}

/// Frees what ticketing_uncertain_keep kept. If the lock was granted after all, its lease ends
/// it. Zero is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_uncertain_free(uncertain: UncertainHandle) -> c_int {
    guarded(|| {
        let things = here();
        if uncertain.id != 0 {
            let taken = things.uncertain.take(uncertain.id);
            taken.ok_or_else(|| things.missing(uncertain.id, "uncertain acquire"))?;
        }
        Ok(())
    })
}

fn find(uncertain: UncertainHandle) -> Result<(About, Arc<Embedded>), Failure> {
    let things = here();
    let about = things.uncertain.get(uncertain.id);
    let about = about.ok_or_else(|| things.missing(uncertain.id, "uncertain acquire"))?;
    let gone = || Failure::new(TICKETING_CLOSED, "the broker of this acquire was freed");
    let broker = about.broker.upgrade().ok_or_else(gone)?;
    Ok((about, broker))
}

fn settle(verdict: Verdict, broker: &Arc<Embedded>) -> Result<TicketHandle, Failure> {
    match verdict {
        Verdict::Held(ticket) => Ok(keep(ticket, broker)),
        Verdict::NotAcquired => {
            Err(Failure::new(TICKETING_NOT_ACQUIRED, "the lock was not acquired, and never will be"))
        }
    }
}
