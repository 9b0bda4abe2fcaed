//! Mistakes that the tests put in, to see what becomes of them.

#![allow(clippy::panic, reason = "that is the mistake")]

use napi_derive::napi;
use ticketing::TicketError;

use crate::core::Core;

#[napi]
impl Core {
    /// A panic in a call of JavaScript.
    #[napi(catch_unwind)]
    pub fn panic_here(&self) {
        panic!("on the thread of JavaScript");
    }

    /// A panic on the broker's thread, in the middle of a call.
    #[napi(catch_unwind)]
    pub fn panic_there(&self) -> u32 {
        self.submit(panics(), None)
    }
}

async fn panics() -> Result<(), TicketError> {
    panic!("on the broker's thread");
}
