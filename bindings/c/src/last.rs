//! The last failure of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ptr;

use crate::failure::{About, Failure};
use crate::guard::guarded;
use crate::raw::Out;
use crate::registry::{UncertainHandle, here};
use crate::sized::{Growing, write};
use crate::status::TICKETING_OK;

/// What is known about the last failure of a thread.
#[repr(C)]
pub struct ErrorInfo {
    /// sizeof(ticketing_error).
    pub size: usize,
    /// What the function returned, or the callback was given; 0 before any failure.
    pub status: c_int,
    /// For TICKETING_NOT_HELD: whether this very release may have ended the lock, since an
    /// earlier try of it lost its answer.
    pub may_have_released: c_int,
    /// Whether there is an owner.
    pub has_owner: c_int,
    /// Whether there is a token.
    pub has_token: c_int,
    /// The owner number of the acquire.
    pub owner: u64,
    /// The fencing token that a release named.
    pub token: u64,
    /// The key, or NULL. Lives until the next failure of this thread.
    pub key: *const c_char,
    /// What happened, with its causes; never NULL. Lives until the next failure of this thread.
    pub message: *const c_char,
}

struct Last {
    status: c_int,
    message: CString,
    key: Option<CString>,
    about: Option<About>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Notes a failure and gives its status back.
pub(crate) fn set(failure: Failure) -> c_int {
    let Failure { status, message, about } = failure;
    let key = about.as_ref().and_then(|about| about.error.key().map(text));
    let last = Last { status, message: text(&message), key, about };
    // A thread that is ending has nobody left to tell.
    let before = LAST.try_with(|slot| slot.borrow_mut().replace(last));
    drop(before);
    status
}

fn text(text: &str) -> CString {
    // What follows a NUL would be lost.
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn about() -> Option<About> {
    LAST.try_with(|slot| slot.borrow().as_ref().and_then(|last| last.about.clone())).ok().flatten()
}

/// What went wrong in the last call of this thread that failed, with its causes; in a callback
/// with a status: what that is about. Never NULL; lives until the next failure of this thread.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub extern "C" fn ticketing_last_message() -> *const c_char {
    message()
}

fn message() -> *const c_char {
    let message = LAST.try_with(|slot| slot.borrow().as_ref().map(|last| last.message.as_ptr()));
    message.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The same with its details. Set error->size to sizeof(ticketing_error) before.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub unsafe extern "C" fn ticketing_last_error(error: *mut ErrorInfo) -> c_int {
    guarded(|| {
        let (status, key) = LAST
            .try_with(|slot| {
                let last = slot.borrow();
                let key = |last: &Last| last.key.as_ref().map_or(ptr::null(), |key| key.as_ptr());
                last.as_ref().map(|last| (last.status, key(last)))
            })
            .ok()
            .flatten()
            .unwrap_or((TICKETING_OK, ptr::null()));
        let about = about().map(|about| about.error);
        let number = |number: Option<u64>| (c_int::from(number.is_some()), number.unwrap_or_default());
        let (has_owner, owner) = number(about.as_ref().and_then(|error| error.owner()));
        let (has_token, token) = number(about.as_ref().and_then(|error| error.token()));
        let may_have_released = about.is_some_and(|error| error.may_have_released()).into();
        let info = ErrorInfo {
            size: size_of::<ErrorInfo>(),
            status,
            may_have_released,
            has_owner,
            has_token,
            owner,
            token,
            key,
            message: message(),
        };
        // SAFETY: NULL, or room for as many bytes as its size says.
        unsafe { write(error, info, "error") }
    })
}

/// Keeps the acquire that the last failure of this thread, a TICKETING_INDETERMINATE, is
/// about, so that it can be verified. To be freed with ticketing_uncertain_free.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub unsafe extern "C" fn ticketing_uncertain_keep(uncertain: *mut UncertainHandle) -> c_int {
    guarded(|| {
        // SAFETY: NULL, or room for a handle.
        let out = unsafe { Out::new(uncertain, "uncertain") }?;
        let about = about().filter(|about| about.error.is_indeterminate());
        let about = about.ok_or_else(|| {
            Failure::invalid(
                "the last failure of this thread is not about an acquire whose outcome is unknown",
            )
        })?;
        out.set(UncertainHandle { id: here().uncertain.insert(about) });
        Ok(())
    })
}

// SAFETY: C layout, its size first, and every bit pattern of its fields is a value.
#[allow(unsafe_code, reason = "a promise about the layout")]
unsafe impl Growing for ErrorInfo {
    fn size(&mut self) -> &mut usize {
        &mut self.size
    }
}
