//! Getting a lock.

#![allow(unsafe_code, reason = "exported, with pointers of the caller")]

use std::ffi::{c_char, c_int, c_void};

use crate::call::{Callback, Done, start};
use crate::failure::Failure;
use crate::guard::{guarded, wait};
use crate::options::AcquireOptions;
use crate::raw::{Out, key as read_key, seconds};
use crate::registry::{BrokerHandle, CallHandle, TicketHandle, here};
use crate::ticket::keep;

/// Waits in the queue of a key and gets its lock. options may be NULL, for the defaults. The
/// ticket is to be given to ticketing_release, ticketing_ticket_detach or ticketing_ticket_free.
///
/// The lock is not re-entrant: its holder queues like anybody else. TICKETING_TIMEOUT,
/// TICKETING_BUSY and TICKETING_NOT_CONNECTED: certainly not acquired.
/// TICKETING_INDETERMINATE: it was sent, and the outcome is unknown; it is never sent again by
/// itself, the critical section is off limits, and ticketing_uncertain_keep and
/// ticketing_verify clear it up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_acquire(
    broker: BrokerHandle,
    key: *const c_char,
    key_len: usize,
    options: *const AcquireOptions,
    ticket: *mut TicketHandle,
) -> c_int {
    guarded(|| {
        // SAFETY: each is NULL or as the head of the header says.
        let out = unsafe { Out::new(ticket, "ticket") }?;
        let broker = here().broker(broker)?;
        // SAFETY: as above.
        let (key, options) = unsafe { (read_key(key, key_len)?, AcquireOptions::read(options)?) };
        let ticket = wait(broker.broker().acquire_with(key, options))?;
        out.set(keep(ticket.map_err(|error| Failure::told(error, &broker))?, &broker));
        Ok(())
    })
}

/// One immediate try that never enters the queue; TICKETING_TIMEOUT if the lock is held. Otherwise
/// as ticketing_acquire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_try_acquire(
    broker: BrokerHandle,
    key: *const c_char,
    key_len: usize,
    lease: f64,
    ticket: *mut TicketHandle,
) -> c_int {
    guarded(|| {
        // SAFETY: each is NULL or as the head of the header says.
        let out = unsafe { Out::new(ticket, "ticket") }?;
        let broker = here().broker(broker)?;
        // SAFETY: as above.
        let key = unsafe { read_key(key, key_len) }?;
        let ticket = wait(broker.broker().try_acquire(key, seconds(lease, "lease")?))?;
        out.set(keep(ticket.map_err(|error| Failure::told(error, &broker))?, &broker));
        Ok(())
    })
}

/// Starts an acquire and returns at once; done is called with its outcome. Acquires of one key
/// that are started one after the other queue in that order. call may be NULL, if it will
/// neither be cancelled nor asked for its place. The key and the options are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_acquire_start(
    broker: BrokerHandle,
    key: *const c_char,
    key_len: usize,
    options: *const AcquireOptions,
    done: Done,
    user_data: *mut c_void,
    call: *mut CallHandle,
) -> c_int {
    guarded(|| {
        let callback = Callback::new(done, user_data)?;
        let broker = here().broker(broker)?;
        // SAFETY: each is NULL or as the head of the header says.
        let (key, options) = unsafe { (read_key(key, key_len)?, AcquireOptions::read(options)?) };
        let acquire = broker.broker().acquire_with(key, options);
        let placement = Some(acquire.placement());
        // SAFETY: as above.
        unsafe {
            start(&broker, acquire, placement, |ticket, broker| Ok(keep(ticket, broker)), callback, call)
        }
    })
}
