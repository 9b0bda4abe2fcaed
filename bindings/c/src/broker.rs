//! Opening and closing, and what can be asked of a broker.

#![allow(unsafe_code, reason = "exported, with pointers of the caller")]

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use serde_json::json;
use ticketing::ConnectionStatus;
use ticketing::embed::Embedded;

use crate::failure::Failure;
use crate::guard::{guarded, is_called_back, wait};
use crate::options::{BrokerOptions, TICKETING_ABI_VERSION};
use crate::raw::{Out, seconds};
use crate::registry::{BrokerHandle, here};
use crate::status::TICKETING_BUFFER_TOO_SMALL;

/// The version of the interface that this library has; see TICKETING_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_abi_version() -> c_uint {
    TICKETING_ABI_VERSION
}

/// The version of this library, such as "1.2.3".
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens a broker. Returns at once and connects in the background; a server that is not there
/// yet is found when it comes. To be freed with ticketing_broker_free.
///
/// TICKETING_INVALID_INPUT for settings that make no sense, TICKETING_TLS for certificates or
/// names that cannot be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_broker_open(
    options: *const BrokerOptions,
    broker: *mut BrokerHandle,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL, or room for a handle.
        let out = unsafe { Out::new(broker, "broker") }?;
        // SAFETY: NULL, or settings as its size and its fields say.
        let builder = unsafe { BrokerOptions::read(options) }?;
        let embedded = Embedded::start(builder)?;
        out.set(BrokerHandle { id: here().brokers.insert(Arc::new(embedded)) });
        Ok(())
    })
}

/// Ends a broker in order: no acquire begins any more, those that wait end (TICKETING_CLOSED, or
/// TICKETING_INDETERMINATE where that cannot be known), releases under way are given a moment,
/// each call that was started calls back. Returns when all that is done, within 2 s and the time
/// that callbacks take. The handle stays; closing twice does no harm. Tickets that are still
/// held stay valid until their leases end, but can no longer be released here.
///
/// In a callback it only begins that and returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_broker_close(broker: BrokerHandle) -> c_int {
    guarded(|| {
        let embedded = here().broker(broker)?;
        close(&embedded);
        Ok(())
    })
}

/// Closes a broker as ticketing_broker_close does, and frees its handle. Safe while other threads
/// wait in calls of it: those end with TICKETING_CLOSED or TICKETING_INDETERMINATE. Zero is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_broker_free(broker: BrokerHandle) -> c_int {
    guarded(|| {
        if broker.id == 0 {
            return Ok(());
        }
        let things = here();
        let embedded = things.brokers.take(broker.id).ok_or_else(|| things.missing(broker.id, "broker"))?;
        close(&embedded);
        Ok(())
    })
}

fn close(embedded: &Embedded) {
    if is_called_back() {
        // Perhaps of another broker, whose thread must not wait for this one.
        let broker = embedded.broker().clone();
        embedded.submit(async move { broker.close().await }, drop);
    } else {
        embedded.close();
    }
}

/// Waits until a session is open that can be asked for locks, for up to timeout seconds.
///
/// TICKETING_AUTH, TICKETING_TLS or TICKETING_WRONG_DOMAIN as soon as every connection fails for
/// that reason; TICKETING_NOT_CONNECTED when the time is over; TICKETING_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn ticketing_wait_ready(broker: BrokerHandle, timeout: f64) -> c_int {
    guarded(|| {
        let broker = here().broker(broker)?;
        let timeout = seconds(timeout, "timeout")?;
        wait(broker.broker().wait_ready(timeout))?.map_err(|error| Failure::told(error, &broker))
    })
}

/// Writes how the connections stand, as a JSON array in the order of the addresses, with a NUL at
/// its end. Each element has "address", "open", "domain" (32 hex digits or null), "node" (a
/// decimal text or null), "leads" (true, false or null), "extension" and "last_error" (a text
/// or null).
///
/// *length becomes its bytes without the NUL. If the buffer has no room for all of it, nothing is
/// written and TICKETING_BUFFER_TOO_SMALL is returned; a size of 0, with a buffer of NULL, asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ticketing_connections(
    broker: BrokerHandle,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: NULL, or room for a size.
        let length = unsafe { Out::new(length, "length") }?;
        let broker = here().broker(broker)?;
        let list: Vec<_> = broker.broker().connections().into_iter().map(connection).collect();
        let text = serde_json::Value::from(list).to_string();
        length.set(text.len());
        if text.len() >= size {
            let message = format!("the buffer has {size} bytes, and {} are needed", text.len() + 1);
            return Err(Failure::new(TICKETING_BUFFER_TOO_SMALL, message));
        }
        if buffer.is_null() {
            return Err(Failure::null("buffer"));
        }
        // SAFETY: the buffer has `size` bytes, which is more.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            buffer.add(text.len()).write(0);
        }
        Ok(())
    })
}

fn connection(status: ConnectionStatus) -> serde_json::Value {
    let ConnectionStatus { address, open, domain, node, leads, extension, last_error } = status;
    json!({
        "address": address,
        "open": open,
        "domain": domain.map(|domain| domain.to_string()),
        "node": node.map(|node| node.to_string()),
        "leads": leads,
        "extension": extension,
        "last_error": last_error,
    })
}
