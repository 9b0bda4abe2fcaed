//! What a call came to.

use std::thread;

use napi::bindgen_prelude::{Array, Env, External};
use ticketing::{Place, Ticket, TicketError, Verdict};

use crate::failure::Failure;
use crate::ticket::Held;

/// What a call came to, on its way to JavaScript.
pub(crate) enum Outcome {
    Done,
    Held(Ticket),
    Place(Place),
    Failed(TicketError),
    /// The call was cancelled, or began when the broker was closed.
    Dropped,
    /// A panic ended the call: a mistake in this library.
    Panicked,
}

impl Outcome {
    /// Of a call that told nothing by itself.
    pub(crate) fn of_nothing() -> Self {
        if thread::panicking() { Self::Panicked } else { Self::Dropped }
    }

    /// Puts it into a batch of JavaScript: the failure, then the value.
    pub(crate) fn write(self, env: &Env, batch: &mut Array<'_>, at: u32) -> napi::Result<()> {
        match self {
            Self::Done => {}
            Self::Held(ticket) => batch.set(at + 1, External::new(Held::new(ticket)))?,
            Self::Place(Place { place, waiters }) => {
                let mut pair = env.create_array(2)?;
                pair.set(0, place)?;
                pair.set(1, waiters)?;
                batch.set(at + 1, pair)?;
            }
            Self::Failed(error) => batch.set(at, Failure::from(error))?,
            Self::Dropped => batch.set(at, Failure::closed())?,
            Self::Panicked => batch.set(at, Failure::panicked())?,
        }
        Ok(())
    }
}

impl From<Result<(), TicketError>> for Outcome {
    fn from(result: Result<(), TicketError>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Done)
    }
}

impl From<Result<Ticket, TicketError>> for Outcome {
    fn from(result: Result<Ticket, TicketError>) -> Self {
        result.map_or_else(Self::Failed, Self::Held)
    }
}

impl From<Result<Place, TicketError>> for Outcome {
    fn from(result: Result<Place, TicketError>) -> Self {
        result.map_or_else(Self::Failed, Self::Place)
    }
}

impl From<Result<Verdict, TicketError>> for Outcome {
    fn from(result: Result<Verdict, TicketError>) -> Self {
        match result {
            Ok(Verdict::Held(ticket)) => Self::Held(ticket),
            Ok(Verdict::NotAcquired) => Self::Done,
            Err(error) => Self::Failed(error),
        }
    }
}
