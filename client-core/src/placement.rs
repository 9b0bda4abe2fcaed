//! The place of a waiting acquire in its queue.

use std::sync::{Arc, Mutex, PoisonError};

use crate::TicketError;
use crate::broker::{Lane, NoLink, Phase, Route, Shared};
use crate::clock::{self, SECOND};
use crate::error::Cause;
use crate::link::{Answer, Caller, Command, Link};
use crate::session::{Kind, Request, Why};

/// For the whole of a question.
const PLACE_TIMEOUT: u64 = 5 * SECOND;

/// Where an acquire stands in the queue of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1 is the head of the queue. 0: not in the queue, because the acquire was
    /// not sent yet, or is over.
    pub place: u32,
    /// How many wait for the key.
    pub waiters: u32,
}

/// Tells the place of one acquire in its queue; made by
/// [`Acquire::placement`](crate::Acquire::placement).
#[derive(Clone, Debug)]
pub struct Placement {
    shared: Arc<Shared>,
    key: Arc<str>,
    owner: u64,
    seat: Arc<Seat>,
}

/// The session on which the acquire waits. Only that one is sure to have heard
/// of it already.
#[derive(Debug, Default)]
pub(crate) struct Seat(Mutex<Option<Arc<Link>>>);

impl Seat {
    pub(crate) fn take(&self, link: &Arc<Link>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(link));
    }

    fn link(&self) -> Option<Arc<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Placement {
    pub(crate) const fn new(shared: Arc<Shared>, key: Arc<str>, owner: u64, seat: Arc<Seat>) -> Self {
        Self { shared, key, owner, seat }
    }

    /// Asks the server where the acquire stands now.
    ///
    /// # Errors
    /// `Unsupported` without protocol extension 1; `NotConnected` when no
    /// answer came within 5 s; `ClientCapacity`, `Closed`, and the errors of
    /// configuration.
    pub async fn place(&self) -> Result<Place, TicketError> {
        self.ask().await.map_err(|cause| cause.about_acquire(&self.key, self.owner))
    }

    async fn ask(&self) -> Result<Place, Cause> {
        let until = clock::now().saturating_add(PLACE_TIMEOUT);
        let full = || Cause::ClientCapacity(self.shared.max_pending());
        let mut permit = self.shared.admit(Lane::Acquire).ok_or_else(full)?;
        let mut seat = self.seat.link();
        loop {
            let link = match seat.take() {
                Some(link) => link,
                None => self.any_link(until).await?,
            };
            if !link.greeted.extension {
                return Err(Cause::Unsupported);
            }
            let (caller, answer) = Caller::new(permit);
            let kind = Kind::Place { owner: self.owner };
            let request = Request { key: Arc::clone(&self.key), kind, until };
            let trouble = match link.send(Command::Submit(request, caller)) {
                Err(_over) => None,
                Ok(()) => match answer.await {
                    Ok(Answer::Place { place, waiters }) => return Ok(Place { place, waiters }),
                    Ok(Answer::Unanswered(unanswered)) => match unanswered.why {
                        Why::Lost(trouble) => Some(trouble),
                        Why::Overdue | Why::Moved => None,
                    },
                    // Not sent; and what is no answer of such a question.
                    Ok(Answer::Unsent(_) | Answer::Granted { .. } | Answer::TimedOut | Answer::Busy)
                    | Ok(Answer::Released | Answer::NotHeld)
                    | Err(_) => None,
                },
            };
            if clock::now() >= until {
                return Err(Cause::NotConnected(trouble));
            }
            permit = self.shared.admit(Lane::Acquire).ok_or_else(full)?;
        }
    }

    async fn any_link(&self, until: u64) -> Result<Arc<Link>, Cause> {
        let choose = |route: &Route| route.pick(self.shared.next_turn()).cloned();
        let link = Arc::clone(&self.shared).link(until, Phase::Open, choose).await;
        link.map_err(|no_link| match no_link {
            NoLink::Closed => Cause::Closed,
            NoLink::Refused(trouble) => Cause::Refused(trouble),
            NoLink::Late(trouble) => Cause::NotConnected(trouble),
        })
    }
}
