//! Giving locks back.

#![allow(unsafe_code, reason = "exported, with pointers of the caller")]

use std::ffi::{c_char, c_int, c_void};

use ticketing::TicketBroker;

use crate::call::{Callback, Done, start};
use crate::failure::Failure;
use crate::guard::{guarded, may_wait, wait};
use crate::raw::key as read_key;
use crate::registry::{BrokerHandle, CallHandle, TicketHandle, here};
use crate::ticket::{Held, take};

/// Gives a lock back and says whether it was still held. The handle is freed whatever comes of
/// it, unless it is TICKETING_WOULD_DEADLOCK. Tried for up to 5 s, over every connection that
/// can serve.
///
/// TICKETING_NOT_HELD: the lease had run out, and somebody else may have had the lock since.
/// TICKETING_RELEASE_UNCONFIRMED: no word came within 5 s.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_release(ticket: TicketHandle) -> c_int {
    guarded(|| {
        may_wait()?;
        let Held { ticket, broker } = take(ticket)?;
        wait(ticket.release())?.map_err(|error| Failure::told(error, &broker))
    })
}

/// Starts a release and returns at once; done is called with its outcome and no ticket. The handle
/// is freed at once, unless done is NULL. call may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_release_start(
    ticket: TicketHandle,
    done: Done,
    user_data: *mut c_void,
    call: *mut CallHandle,
) -> c_int {
    guarded(|| {
        let callback = Callback::new(done, user_data)?;
        let Held { ticket, broker } = take(ticket)?;
        // SAFETY: NULL, or room for a handle.
        unsafe { start(&broker, ticket.release(), None, |(), _| Ok(TicketHandle::default()), callback, call) }
    })
}

/// Gives back the lock that was granted under exactly this token, wherever it was granted; for
/// what ticketing_ticket_detach returned. Otherwise as ticketing_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_release_token(
    broker: BrokerHandle,
    key: *const c_char,
    key_len: usize,
    token: u64,
) -> c_int {
    guarded(|| {
        let broker = here().broker(broker)?;
        // SAFETY: NULL, or as many bytes as are said.
        let key = unsafe { read_key(key, key_len) }?;
        wait(broker.broker().release(key, token))?.map_err(|error| Failure::told(error, &broker))
    })
}

/// Starts such a release and returns at once; done is called with its outcome and no ticket. call
/// may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_release_token_start(
    broker: BrokerHandle,
    key: *const c_char,
    key_len: usize,
    token: u64,
    done: Done,
    user_data: *mut c_void,
    call: *mut CallHandle,
) -> c_int {
    guarded(|| {
        let callback = Callback::new(done, user_data)?;
        let broker = here().broker(broker)?;
        // SAFETY: NULL, or as many bytes as are said.
        let release = release(broker.broker().clone(), unsafe { read_key(key, key_len) }?.to_owned(), token);
        // SAFETY: NULL, or room for a handle.
        unsafe { start(&broker, release, None, |(), _| Ok(TicketHandle::default()), callback, call) }
    })
}

async fn release(broker: TicketBroker, key: String, token: u64) -> Result<(), ticketing::TicketError> {
    broker.release(&key, token).await
}
