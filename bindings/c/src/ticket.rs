//! Tickets: locks that are held.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use ticketing::embed::Embedded;
use ticketing::{Domain, Ticket};
use ticketing_protocol::limits::MAX_KEY_BYTES;

use crate::failure::Failure;
use crate::guard::guarded;
use crate::registry::{TicketHandle, here};
use crate::sized::{Growing, write};

/// A ticket, and the broker that its release goes through.
pub(crate) struct Held {
    pub(crate) ticket: Ticket,
    pub(crate) broker: Arc<Embedded>,
}

/// A lock as plain data. Set size to sizeof(ticketing_grant), as TICKETING_GRANT_INIT does.
#[repr(C)]
pub struct Grant {
    /// sizeof(ticketing_grant).
    pub size: usize,
    /// The fencing token: greater than that of every earlier grant in the domain.
    pub token: u64,
    /// The owner number of the acquire, as the server knows it.
    pub owner: u64,
    /// What is surely left of the lease, in seconds; 0 when nothing is.
    pub remaining: f64,
    /// Whether the server named its fencing domain.
    pub has_domain: c_int,
    /// The fencing domain, within which tokens compare.
    pub domain: [u8; 16],
    /// The lock's name, with a NUL at its end.
    pub key: [c_char; 129],
}

// SAFETY: C layout, its size first, and every bit pattern of its fields is a value.
#[allow(unsafe_code, reason = "a promise about the layout")]
unsafe impl Growing for Grant {
    fn size(&mut self) -> &mut usize {
        &mut self.size
    }
}

impl Grant {
    fn of(ticket: &Ticket) -> Self {
        const { assert!(MAX_KEY_BYTES + 1 == 129) };
        let mut key = [0; 129];
        for (to, byte) in key.iter_mut().zip(ticket.key().bytes()) {
            *to = byte.cast_signed() as c_char;
        }
        Self {
            size: size_of::<Self>(),
            token: ticket.token(),
            owner: ticket.owner(),
            remaining: ticket.remaining().as_secs_f64(),
            has_domain: ticket.domain().is_some().into(),
            domain: ticket.domain().map_or([0; 16], |Domain(bytes)| bytes),
            key,
        }
    }
}

/// A handle for a lock that was granted.
pub(crate) fn keep(ticket: Ticket, broker: &Arc<Embedded>) -> TicketHandle {
    let held = Held { ticket, broker: Arc::clone(broker) };
    TicketHandle { id: here().tickets.insert(held) }
}

/// Takes the ticket from its handle.
pub(crate) fn take(ticket: TicketHandle) -> Result<Held, Failure> {
    let things = here();
    things.tickets.take(ticket.id).ok_or_else(|| things.missing(ticket.id, "ticket"))
}

/// Tells all about a lock that is held: its token, and what is left of its lease now.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported, with a pointer of the caller")]
pub unsafe extern "C" fn ticketing_ticket_info(ticket: TicketHandle, grant: *mut Grant) -> c_int {
    guarded(|| {
        let things = here();
        let seen = things.tickets.with(ticket.id, |held| Grant::of(&held.ticket));
        let seen = seen.ok_or_else(|| things.missing(ticket.id, "ticket"))?;
        // SAFETY: NULL, or room for as many bytes as its size says.
        unsafe { write(grant, seen, "grant") }
    })
}

/// Turns a ticket into plain data and frees its handle. Nothing releases the lock by itself then
/// but the end of its lease: hand the data to whoever calls ticketing_release_token.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported, with a pointer of the caller")]
pub unsafe extern "C" fn ticketing_ticket_detach(ticket: TicketHandle, grant: *mut Grant) -> c_int {
    guarded(|| {
        let things = here();
        let seen = things.tickets.with(ticket.id, |held| Grant::of(&held.ticket));
        let seen = seen.ok_or_else(|| things.missing(ticket.id, "ticket"))?;
        // Its token must have arrived before nobody else has it. SAFETY: as above.
        unsafe { write(grant, seen, "grant") }?;
        let Held { ticket, .. } = take(ticket)?;
        let _ = ticket.detach();
        Ok(())
    })
}

/// Frees a ticket. The lock is given back in the background, as well as that can be done within
/// 5 s; the lease ends what fails. Does not wait. Zero is ignored.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub extern "C" fn ticketing_ticket_free(ticket: TicketHandle) -> c_int {
    guarded(|| {
        if ticket.id != 0 {
            drop(take(ticket)?);
        }
        Ok(())
    })
}
