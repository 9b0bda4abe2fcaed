//! What has ended, on its way to the thread of JavaScript.
//!
//! To wake that thread costs a system call, so one is paid for each batch and
//! not for each outcome: only what comes into an empty list rings. Neither side
//! waits for the other.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{Env, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Status, check_status, sys};

use crate::outcome::Outcome;

/// Calls a function of JavaScript, from any thread. One call may wait: another
/// one would find nothing that the first does not.
type Bell = ThreadsafeFunction<(), (), (), Status, false, true, 1>;

/// The outcomes that JavaScript has not taken yet, with the numbers of their calls.
pub(crate) struct Ended {
    list: Mutex<Vec<(u32, Outcome)>>,
    bell: Bell,
}

impl Ended {
    /// `deliver` is called when there is something to take. It does not keep the
    /// process alive, unless that is [asked for](Ended::keep_alive).
    pub(crate) fn new(deliver: &Function<'_, (), ()>) -> napi::Result<Self> {
        let bell = deliver.build_threadsafe_function::<()>();
        let bell = bell.callee_handled::<false>().weak::<true>().max_queue_size::<1>().build()?;
        Ok(Self { list: Mutex::default(), bell })
    }

    /// Brings what a call came to. If the environment is gone, nobody will take
    /// it: it is dropped with this list, and a ticket is given back by that.
    pub(crate) fn push(&self, number: u32, outcome: Outcome) {
        let was_empty = {
            let mut list = self.list();
            list.push((number, outcome));
            list.len() == 1
        };
        if was_empty {
            // It fails if it has been rung already, or if nobody is there any more.
            self.bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    pub(crate) fn take(&self) -> Vec<(u32, Outcome)> {
        mem::take(&mut *self.list())
    }

    /// Whether the process must go on for what is still to come. On the thread of
    /// JavaScript only.
    pub(crate) fn keep_alive(&self, env: &Env, alive: bool) -> napi::Result<()> {
        self.bell.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            let bell = self.bell.raw();
            // SAFETY: it was not aborted, and cannot be while the lock is held; the
            // environment is the one in which it was made, and this is its thread.
            check_status!(unsafe {
                if alive {
                    sys::napi_ref_threadsafe_function(env.raw(), bell)
                } else {
                    sys::napi_unref_threadsafe_function(env.raw(), bell)
                }
            })
        })
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u32, Outcome)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
