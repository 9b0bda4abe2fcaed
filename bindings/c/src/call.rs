//! Calls that were started: they call back when they are over.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use ticketing::embed::{Embedded, Submission};
use ticketing::{Placement, TicketError};

use crate::failure::Failure;
use crate::guard::{calling_back, caught, guarded, wait};
use crate::last;
use crate::raw::Out;
use crate::registry::{CallHandle, TicketHandle, here};
use crate::status::{TICKETING_CANCELLED, TICKETING_CLOSED, TICKETING_OK};

/// Called when a call that was started is over: exactly once if starting it returned
/// TICKETING_OK, and never if it did not. Also at a close or a cancel.
///
/// It runs on the broker's own thread, on which all its connections wait meanwhile, so it should
/// be short, and nothing in it may wait for a broker: such functions return
/// TICKETING_WOULD_DEADLOCK there. Starting, cancelling, freeing and asking a ticket are fine.
/// It may run before the function that started the call has returned. It must not throw: an
/// exception of C++ that leaves it ends the process.
///
/// status says how the call ended; ticketing_last_message and ticketing_last_error tell more
/// if it is not TICKETING_OK. ticket is the lock if the call was to get one and status is
/// TICKETING_OK, and zero otherwise; it is the callback's to keep.
#[allow(unsafe_code, reason = "a promise of the caller")]
pub type Done =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, status: c_int, ticket: TicketHandle)>;

/// A call under way.
pub(crate) struct Call {
    cancelled: AtomicBool,
    /// Set as soon as it was submitted.
    submission: OnceLock<Submission>,
    /// Of an acquire.
    placement: Option<Placement>,
}

impl Call {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(submission) = self.submission.get() {
            submission.cancel();
        }
    }
}

/// The function and the data of the user.
pub(crate) struct Callback {
    done: unsafe extern "C-unwind" fn(*mut c_void, c_int, TicketHandle),
    user_data: *mut c_void,
}

// SAFETY: the data is only handed back, and whoever starts a call says that its callback may
// run on another thread.
#[allow(unsafe_code, reason = "the pointer is opaque here")]
unsafe impl Send for Callback {}

impl Callback {
    pub(crate) fn new(done: Done, user_data: *mut c_void) -> Result<Self, Failure> {
        Ok(Self { done: done.ok_or_else(|| Failure::null("done"))?, user_data })
    }

    #[allow(unsafe_code, reason = "the function is the user's")]
    fn call(self, outcome: Result<TicketHandle, Failure>) {
        let (status, ticket) = match outcome {
            Ok(ticket) => (TICKETING_OK, ticket),
            Err(failure) => (last::set(failure), TicketHandle::default()),
        };
        calling_back(|| {
            // An exception of another language is not caught by this, but ends the process.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: whoever started the call says that this function may be called with this data.
                unsafe { (self.done)(self.user_data, status, ticket) }
            }));
        });
    }
}

thread_local! {
    /// The call that this thread is starting; [`REFUSED`] if it was over at once.
    static STARTING: Cell<u64> = const { Cell::new(0) };
}

/// No number of a call.
const REFUSED: u64 = u64::MAX;

/// Submits a future of `broker`. `finish` makes of its value what is called back with.
///
/// # Safety
/// `call` is NULL, if nobody wants to cancel it, or room for a handle.
#[allow(unsafe_code, reason = "a handle is written for the caller")]
pub(crate) unsafe fn start<F, T>(
    broker: &Arc<Embedded>,
    future: F,
    placement: Option<Placement>,
    finish: impl FnOnce(T, &Arc<Embedded>) -> Result<TicketHandle, Failure> + Send + 'static,
    callback: Callback,
    call: *mut CallHandle,
) -> Result<(), Failure>
where
    F: Future<Output = Result<T, TicketError>> + Send + 'static,
    T: Send + 'static,
{
    let under_way =
        Arc::new(Call { cancelled: AtomicBool::new(false), submission: OnceLock::new(), placement });
    let number = here().calls.insert(Arc::clone(&under_way));
    if !call.is_null() {
        // Before anything can call back. SAFETY: room for a handle, as the caller says.
        unsafe { Out::new(call, "call") }?.set(CallHandle { id: number });
    }
    let (home, state) = (Arc::clone(broker), Arc::clone(&under_way));
    let before = STARTING.replace(number);
    let submission = broker.submit(future, move |outcome| {
        here().calls.take(number);
        if outcome.is_none() && STARTING.get() == number {
            // There is no thread any more that could call back.
            return STARTING.set(REFUSED);
        }
        let outcome = match outcome {
            Some(Ok(value)) => caught(|| finish(value, &home)),
            Some(Err(error)) => Err(Failure::told(error, &home)),
            None if thread::panicking() => Err(Failure::panicked()),
            None if state.cancelled.load(Ordering::SeqCst) => {
                Err(Failure::new(TICKETING_CANCELLED, "the call was cancelled"))
            }
            None => Err(closed()),
        };
        callback.call(outcome);
    });
    let refused = STARTING.replace(before) == REFUSED;
    if refused {
        if !call.is_null() {
            // SAFETY: as above.
            unsafe { Out::new(call, "call") }?;
        }
        return Err(closed());
    }
    if under_way.submission.set(submission).is_ok() && under_way.cancelled.load(Ordering::SeqCst) {
        under_way.cancel();
    }
    Ok(())
}

fn closed() -> Failure {
    Failure::new(TICKETING_CLOSED, "the broker is closed")
}

/// Cancels a call that was started. Its callback comes all the same: with TICKETING_CANCELLED, or
/// with its outcome if it was over before. A cancelled acquire that was not sent never is, a
/// waiter leaves its queue, and a late grant is given back. A cancelled release goes on.
/// TICKETING_STALE_HANDLE if the call is over, which does no harm.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported")]
pub extern "C" fn ticketing_cancel(call: CallHandle) -> c_int {
    guarded(|| {
        find(call)?.cancel();
        Ok(())
    })
}

/// Asks where an acquire that was started stands in the queue of its key. *place becomes 1 at the
/// head of the queue, and 0 if it is not in the queue, because it was not sent yet or is over;
/// *waiters becomes how many wait. Waits for the server's answer, up to 5 s.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "exported, with pointers of the caller")]
pub unsafe extern "C" fn ticketing_place(call: CallHandle, place: *mut u32, waiters: *mut u32) -> c_int {
    guarded(|| {
        // SAFETY: NULL, or room for a number.
        let (place, waiters) = unsafe { (Out::new(place, "place")?, Out::new(waiters, "waiters")?) };
        let call = find(call)?;
        let Some(placement) = &call.placement else {
            return Err(Failure::invalid("only an acquire has a place in a queue"));
        };
        let seen = wait(placement.place())??;
        place.set(seen.place);
        waiters.set(seen.waiters);
        Ok(())
    })
}

fn find(call: CallHandle) -> Result<Arc<Call>, Failure> {
    let things = here();
    things.calls.get(call.id).ok_or_else(|| things.missing(call.id, "call"))
}
