//! A request under way, from Python's side.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use ticketing::embed::{Embedded, Submission};
use ticketing::{Place, Placement, Ticket, TicketError, Verdict};

use crate::failure::{Failure, Refusal};
use crate::inbox::{Inbox, Queue};
use crate::process::{Inside, Own};
use crate::ticket::Held;

/// How often a thread that waits looks whether a signal came.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The broker that everything comes of; out of reach in a fork.
pub(crate) type Home = Arc<Own<Embedded>>;

/// What a request came to. Tickets and errors lead to connections, so a fork
/// must not drop them.
pub(crate) enum Outcome {
    Done,
    Held(Own<Ticket>),
    Place(Place),
    Failed(Own<TicketError>),
    Refused(Refusal),
    Cancelled,
}

impl From<Result<Ticket, TicketError>> for Outcome {
    fn from(result: Result<Ticket, TicketError>) -> Self {
        result.map_or_else(Self::failed, |ticket| Self::Held(Own::new(ticket)))
    }
}

impl From<Result<Verdict, TicketError>> for Outcome {
    fn from(result: Result<Verdict, TicketError>) -> Self {
        match result {
            Ok(Verdict::Held(ticket)) => Self::Held(Own::new(ticket)),
            Ok(Verdict::NotAcquired) => Self::Done,
            Err(error) => Self::failed(error),
        }
    }
}

impl From<Result<Place, TicketError>> for Outcome {
    fn from(result: Result<Place, TicketError>) -> Self {
        result.map_or_else(Self::failed, Self::Place)
    }
}

impl From<Result<(), TicketError>> for Outcome {
    fn from(result: Result<(), TicketError>) -> Self {
        result.map_or_else(Self::failed, |()| Self::Done)
    }
}

impl Outcome {
    fn failed(error: TicketError) -> Self {
        Self::Failed(Own::new(error))
    }
}

/// Where an outcome lies until somebody takes it.
pub(crate) struct Slot {
    state: Mutex<State>,
    ended: Condvar,
    /// Whose loop is told, under which number. `None`: a thread waits.
    inbox: Option<(Arc<Queue>, u64)>,
    cancelled: AtomicBool,
    home: Home,
}

enum State {
    Pending,
    Ended(Outcome),
    /// It was taken, or nobody wants it any more.
    Over,
}

impl Slot {
    fn new(home: &Home, inbox: Option<&Inbox>, number: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::Pending),
            ended: Condvar::new(),
            inbox: inbox.and_then(Inbox::queue).map(|queue| (Arc::clone(queue), number)),
            cancelled: AtomicBool::new(false),
            home: Arc::clone(home),
        })
    }

    /// Puts the outcome in and tells whoever waits for it. What nobody wants is
    /// dropped, and a ticket is given back by that.
    fn put(self: &Arc<Self>, outcome: Outcome) {
        let unwanted = {
            let mut state = self.state();
            match *state {
                State::Pending => {
                    *state = State::Ended(outcome);
                    None
                }
                State::Ended(_) | State::Over => Some(outcome),
            }
        };
        if unwanted.is_some() {
            return;
        }
        match &self.inbox {
            None => self.ended.notify_all(),
            Some((queue, number)) => {
                if let Err(slot) = queue.push(*number, Arc::clone(self)) {
                    slot.abandon();
                }
            }
        }
    }

    /// The outcome, for the one who asks first; for the others it is cancelled.
    pub(crate) fn take(&self) -> Option<Outcome> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Over) {
            State::Ended(outcome) => Some(outcome),
            State::Over => Some(Outcome::Cancelled),
            State::Pending => {
                *state = State::Pending;
                None
            }
        }
    }

    /// Nobody wants the outcome, whether it is there already or still comes.
    pub(crate) fn abandon(&self) {
        let left = std::mem::replace(&mut *self.state(), State::Over);
        // Not under the lock: a ticket in it is given back here.
        drop(left);
    }

    /// Sleeps until there is an outcome, or for so long.
    fn sleep(&self, at_most: Option<Duration>) {
        let state = self.state();
        let pending = |state: &mut State| matches!(state, State::Pending);
        match at_most {
            None => drop(self.ended.wait_while(state, pending)),
            Some(time) => drop(self.ended.wait_timeout_while(state, time, pending)),
        }
    }

    /// The outcome as Python sees it.
    pub(crate) fn tell_python(&self, py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        Ok(match outcome {
            Outcome::Done => py.None(),
            Outcome::Held(ticket) => match ticket.into_inner() {
                Some(ticket) => Py::new(py, Held::new(Arc::clone(&self.home), ticket))?.into_any(),
                None => Py::new(py, Failure::from(Refusal::Forked))?.into_any(),
            },
            Outcome::Place(Place { place, waiters }) => {
                (place, waiters).into_pyobject(py)?.into_any().unbind()
            }
            Outcome::Failed(error) => match error.into_inner() {
                Some(error) => Py::new(py, Failure::told(&self.home, error))?.into_any(),
                None => Py::new(py, Failure::from(Refusal::Forked))?.into_any(),
            },
            Outcome::Refused(refusal) => Py::new(py, Failure::from(refusal))?.into_any(),
            Outcome::Cancelled => py.Ellipsis(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
///
/// With an inbox, the outcome goes there; without one, `wait` has it. It is
/// `None`, a `Held`, a `Failure`, a place and the number of waiters, or `...` if
/// it was cancelled.
#[pyclass(frozen, module = "ticketing._ticketing")]
pub(crate) struct Call {
    slot: Arc<Slot>,
    submission: Own<Option<Submission>>,
    placement: Option<Own<Placement>>,
}

impl Call {
    /// Starts a request. What is refused ends like any other: as an outcome.
    pub(crate) fn start<F>(
        home: &Home,
        inbox: Option<&Inbox>,
        number: u64,
        request: Result<F, Refusal>,
    ) -> Self
    where
        F: Future<Output: Into<Outcome> + Send> + Send + 'static,
    {
        let slot = Slot::new(home, inbox, number);
        let submission = match (home.get(), request) {
            (None, _) => {
                slot.put(Outcome::Refused(Refusal::Forked));
                None
            }
            (Some(_), Err(refusal)) => {
                slot.put(Outcome::Refused(refusal));
                None
            }
            (Some(embedded), Ok(future)) => {
                let slot = Arc::clone(&slot);
                Some(embedded.submit(future, move |outcome| {
                    slot.put(match outcome {
                        Some(outcome) => outcome.into(),
                        None if slot.cancelled.load(Ordering::Acquire) => Outcome::Cancelled,
                        None => Outcome::Refused(Refusal::Closed),
                    });
                }))
            }
        };
        Self { slot, submission: Own::new(submission), placement: None }
    }

    /// Says where its place in the queue can be asked for.
    pub(crate) fn with_placement(self, placement: Option<Placement>) -> Self {
        Self { placement: placement.map(Own::new), ..self }
    }
}

#[pymethods]
impl Call {
    /// Blocks until there is an outcome. Signals are seen to if this is the
    /// thread that they go to; what their handlers raise ends the call.
    fn wait(&self, py: Python<'_>, sees_signals: bool) -> PyResult<Py<PyAny>> {
        loop {
            // A handler may have forked, and here is the child.
            if self.submission.get().is_none() {
                return Ok(Py::new(py, Failure::from(Refusal::Forked))?.into_any());
            }
            if let Some(outcome) = self.slot.take() {
                return self.slot.tell_python(py, outcome);
            }
            let inside = Inside::enter();
            py.detach(|| self.slot.sleep(sees_signals.then_some(SIGNALS_EVERY)));
            drop(inside);
            if sees_signals && let Err(interrupt) = py.check_signals() {
                self.abandon();
                return Err(interrupt);
            }
        }
    }

    /// Ends it, from any thread; whoever waits for the outcome is told so.
    fn cancel(&self) {
        if let Some(Some(submission)) = self.submission.get() {
            self.slot.cancelled.store(true, Ordering::Release);
            submission.cancel();
        }
    }

    /// Ends it and forgets it: nobody waits for the outcome any more. A ticket
    /// that has come, or comes yet, is given back.
    fn abandon(&self) {
        if let Some(submission) = self.submission.get() {
            self.slot.abandon();
            if let Some(submission) = submission {
                submission.cancel();
            }
        }
    }

    /// Asks for the place of an acquire in its queue.
    fn place(&self, inbox: Option<&Bound<'_, Inbox>>, number: u64) -> Self {
        let placement = self.placement.as_ref().and_then(Own::get).cloned();
        let question = placement.map(|placement| async move { placement.place().await });
        let inbox = inbox.map(Bound::get);
        Self::start(&self.slot.home, inbox, number, question.ok_or(Refusal::NotWaiting))
    }
}
