//! One acquire, from the caller's side.
//!
//! It runs in the caller's own task: choose a session, push the request to its
//! queue, await the answer. A hand-written future, so that it costs one
//! allocation for its answer and none for itself, and so that dropping it at
//! any point leaves nothing behind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tracing::Span;

use crate::broker::{Lane, Lifeline, NoLink, Permit, Phase};
use crate::clock::{self, SECOND};
use crate::error::{Cause, Invalid};
use crate::input::{Wish, check_key};
use crate::link::{Answer, Caller, Command, Link, Unanswered};
use crate::placement::{Placement, Seat};
use crate::session::{Kind, Request, Why};
use crate::ticket::Ticket;
use crate::trouble::{At, Trouble};
use crate::verify::Uncertain;
use crate::{AcquireOptions, TicketError};

/// How long an immediate try waits for a session.
const IMMEDIATE_PATIENCE: u64 = SECOND;

/// An acquire under way: a future of a [`Ticket`].
///
/// It begins when it is first polled, and its wait counts from there. Dropping
/// it is safe at any moment: what was not sent never is; what was sent leaves
/// the server's queue (with protocol extension 1), and if the grant comes
/// anyway, the lock is given back at once, however many are dropped together. Requests beside it are not disturbed.
/// Polled again after its end, it says so with an `InvalidInput`.
///
/// ```
/// # let server = ticketing_test_support::Server::start(&[]);
/// # let address = server.addr().to_string();
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
/// use ticketing::TicketBroker;
///
/// let broker = TicketBroker::connect([address])?;
/// let (wait, lease) = (Duration::from_secs(60), Duration::from_secs(60));
/// let held = broker.acquire("seat:12", wait, lease).await?;
///
/// let mut acquire = broker.acquire("seat:12", wait, lease);
/// let placement = acquire.placement();
/// let patience = Duration::from_millis(500);
/// assert!(tokio::time::timeout(patience, &mut acquire).await.is_err());
/// assert_eq!(placement.place().await?.place, 1, "the head of the queue");
///
/// held.release().await?;
/// acquire.await?.release().await?;
/// # Ok::<(), ticketing::TicketError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire {
    lifeline: Arc<Lifeline>,
    key: Arc<str>,
    owner: u64,
    wish: Wish,
    began_at: u64,
    /// While nothing was sent, it ends here.
    until: u64,
    permit: Option<Permit>,
    link: Option<Arc<Link>>,
    step: Step,
    /// Who asks for the place in the queue, if anybody does.
    seat: OnceLock<Arc<Seat>>,
    span: Span,
}

enum Step {
    /// Refused before it began.
    Refused(Option<TicketError>),
    Begin,
    Choose,
    Wait(Pin<Box<dyn Future<Output = Result<Arc<Link>, NoLink>> + Send>>),
    Sent(oneshot::Receiver<Answer>),
    Over,
}

impl Acquire {
    pub(crate) fn new(lifeline: Arc<Lifeline>, key: &str, options: &AcquireOptions) -> Self {
        let checked = check_key(key).and_then(|()| Wish::check(options));
        let (key, wish, step) = match checked {
            Ok(wish) => (key, wish, Step::Begin),
            // An illegal key may be of any size, and nobody will ask for it.
            Err(invalid) => ("", Wish::NONE, Step::Refused(Some(invalid.into()))),
        };
        let owner = lifeline.0.next_owner();
        Self {
            lifeline,
            key: key.into(),
            owner,
            wish,
            began_at: 0,
            until: 0,
            permit: None,
            link: None,
            step,
            seat: OnceLock::new(),
            span: Span::none(),
        }
    }

    /// A handle that tells the place in the queue while this acquire waits,
    /// from any task.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let seat = Arc::clone(self.seat.get_or_init(Arc::default));
        if let Some(link) = &self.link {
            seat.take(link);
        }
        Placement::new(Arc::clone(&self.lifeline.0), Arc::clone(&self.key), self.owner, seat)
    }

    fn begin(&mut self) -> Result<(), Cause> {
        self.span = tracing::debug_span!("acquire", key = &*self.key, owner = self.owner);
        let shared = &self.lifeline.0;
        let patience = match self.wish.wait_secs {
            0 => IMMEDIATE_PATIENCE,
            secs => u64::from(secs) * SECOND,
        };
        self.began_at = clock::now();
        self.until = self.began_at.saturating_add(patience);
        self.permit = shared.admit(Lane::Acquire);
        if self.permit.is_none() {
            return Err(Cause::ClientCapacity(shared.max_pending()));
        }
        self.step = Step::Choose;
        Ok(())
    }

    /// Sends the request, or waits for a session.
    fn choose(&mut self) -> Result<(), Cause> {
        let shared = &self.lifeline.0;
        let turn = shared.next_turn();
        let link = {
            let route = shared.directory.route();
            if route.phase > Phase::Open {
                return Err(Cause::Closed);
            }
            route.pick(turn).cloned()
        };
        match link {
            Some(link) => self.submit(link),
            None => self.wait(),
        }
        Ok(())
    }

    fn submit(&mut self, link: Arc<Link>) {
        // It is here: every way back to this place brings it.
        let permit = self.permit.take().unwrap_or_else(|| self.lifeline.0.admit_beyond(Lane::Acquire));
        let (caller, answer) = Caller::new(permit);
        let kind = Kind::Acquire {
            owner: self.owner,
            wait_secs: self.wish.wait_secs,
            lease_secs: self.wish.lease_secs,
        };
        let request = Request { key: Arc::clone(&self.key), kind, until: self.until };
        match link.send(Command::Submit(request, caller)) {
            Ok(()) => {
                if let Some(seat) = self.seat.get() {
                    seat.take(&link);
                }
                self.link = Some(link);
                self.step = Step::Sent(answer);
            }
            Err(Command::Submit(_, caller)) => {
                // That session has just ended.
                self.permit = caller.into_permit();
                self.wait();
            }
            Err(_) => {}
        }
    }

    fn wait(&mut self) {
        let shared = Arc::clone(&self.lifeline.0);
        let turns = Arc::clone(&shared);
        let chosen =
            shared.link(self.until, Phase::Open, move |route| route.pick(turns.next_turn()).cloned());
        self.step = Step::Wait(Box::pin(chosen));
    }

    fn settle(&mut self, answer: Answer) -> Option<Result<Ticket, Cause>> {
        let closing = || self.lifeline.0.directory.route().phase > Phase::Open;
        Some(match answer {
            // The hold is dropped with the answer, and so given back.
            Answer::Granted { .. } if closing() => Err(Cause::Closed),
            Answer::Granted { hold, ends_at } => {
                let domain = self.link.as_ref().and_then(|link| link.greeted.domain);
                Ticket::accept(hold, Arc::clone(&self.lifeline), self.owner, domain, ends_at, self.wish)
            }
            Answer::TimedOut => Err(Cause::Timeout),
            // The broker may have taken the waiter out itself.
            Answer::Busy if closing() => Err(Cause::Closed),
            Answer::Busy => Err(Cause::Busy),
            Answer::Unsent(permit) => {
                self.permit = Some(permit);
                self.link = None;
                if clock::now() < self.until {
                    self.step = Step::Choose;
                    return None;
                }
                Err(Cause::NotConnected(self.lifeline.0.directory.route().trouble.clone()))
            }
            Answer::Unanswered(unanswered) => Err(self.indeterminate(unanswered)),
            // No answers of an acquire.
            Answer::Released | Answer::NotHeld | Answer::Place { .. } => Err(self.unheard()),
        })
    }

    fn indeterminate(&self, Unanswered { sent_at, why, claim }: Unanswered) -> Cause {
        let asked = match &self.link {
            Some(link) if matches!(why, Why::Overdue) => Some(Arc::clone(link)),
            Some(_) | None => None,
        };
        let trouble = match (why, &self.link) {
            (Why::Lost(trouble), _) => Some(trouble),
            (Why::Overdue | Why::Moved, Some(link)) => {
                Some(Arc::new(At { address: Arc::clone(&link.address), what: Trouble::Overdue }))
            }
            (Why::Overdue | Why::Moved, None) => None,
        };
        let lifeline = Arc::downgrade(&self.lifeline);
        let key = Arc::clone(&self.key);
        let uncertain =
            Uncertain { lifeline, key, owner: self.owner, wish: self.wish, sent_at, claim, asked };
        Cause::Indeterminate { why: trouble, uncertain: Box::new(uncertain) }
    }

    /// No word at all: the tasks went away with their runtime. Whether a byte
    /// was sent cannot be known then.
    fn unheard(&self) -> Cause {
        let address: Arc<str> =
            self.link.as_ref().map_or_else(|| "".into(), |link| Arc::clone(&link.address));
        let why = Why::Lost(Arc::new(At { address, what: Trouble::RuntimeGone }));
        self.indeterminate(Unanswered { sent_at: self.began_at, why, claim: Arc::default() })
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ticket, Cause>> {
        loop {
            match &mut self.step {
                Step::Begin => self.begin()?,
                Step::Choose => self.choose()?,
                Step::Wait(link) => match ready!(link.as_mut().poll(cx)) {
                    Ok(link) => self.submit(link),
                    Err(NoLink::Closed) => return Poll::Ready(Err(Cause::Closed)),
                    Err(NoLink::Refused(trouble)) => return Poll::Ready(Err(Cause::Refused(trouble))),
                    Err(NoLink::Late(trouble)) => return Poll::Ready(Err(Cause::NotConnected(trouble))),
                },
                Step::Sent(answer) => {
                    let answer = ready!(Pin::new(answer).poll(cx));
                    // Nothing is left to be taken back, whatever it says.
                    self.step = Step::Over;
                    let outcome = match answer {
                        Ok(answer) => self.settle(answer),
                        Err(_) => Some(Err(self.unheard())),
                    };
                    if let Some(outcome) = outcome {
                        return Poll::Ready(outcome);
                    }
                }
                Step::Refused(_) | Step::Over => {
                    return Poll::Ready(Err(Cause::Invalid(Invalid::OverBefore)));
                }
            }
        }
    }
}

impl Future for Acquire {
    type Output = Result<Ticket, TicketError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Step::Refused(error) = &mut this.step {
            // It has no key to name.
            return Poll::Ready(Err(error.take().unwrap_or_else(|| Invalid::OverBefore.into())));
        }
        let span = this.span.clone();
        let _inside = span.enter();
        let outcome = ready!(this.turn(cx));
        this.step = Step::Over;
        this.permit = None;
        Poll::Ready(outcome.map_err(|cause| cause.about_acquire(&this.key, this.owner)))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Step::Sent(answer) = &mut self.step else { return };
        // From here on the session cannot answer; what it has answered by now
        // is dropped, and a grant is given back by that.
        answer.close();
        if answer.try_recv().is_err()
            && let Some(link) = &self.link
        {
            // The session may be over: then there is nothing to take back.
            let _ = link.send(Command::GiveUp { owner: self.owner, key: Arc::clone(&self.key) });
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("key", &self.key).field("owner", &self.owner).finish_non_exhaustive()
    }
}
