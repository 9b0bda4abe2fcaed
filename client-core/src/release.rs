//! Giving locks back: by exact key and token, tried on any session until an
//! absolute deadline.
//!
//! A release may be sent twice: the token makes the second one harmless. So an
//! explicit release whose future is dropped half way simply goes on among the
//! compensations, the releases that nobody waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use crate::TicketError;
use crate::broker::{Lane, NoLink, Permit, Phase, Shared};
use crate::clock::{self, SECOND};
use crate::error::Cause;
use crate::link::{Answer, Caller, Command, Link, Unanswered};
use crate::session::{Kind, Request, Why};
use crate::trouble::{At, Trouble};

/// From the request to the end of all tries; never what is left of the lease.
const RELEASE_TIMEOUT: u64 = 5 * SECOND;

/// How many releases that nobody waits for may be under way at a time.
const COMPENSATIONS_AT_A_TIME: usize = 512;

/// Before a node that said that it does not lead may be asked again.
const MOVED_PAUSE: Duration = Duration::from_millis(100);

/// One release, from its request to its end.
pub(crate) struct ReleaseJob {
    shared: Arc<Shared>,
    key: Arc<str>,
    token: u64,
    until: u64,
    permit: Option<Permit>,
    step: Step,
    /// Why the last try that was sent has no answer.
    lost: Option<Why>,
}

enum Step {
    Choose,
    Wait(Pin<Box<dyn Future<Output = Result<Arc<Link>, NoLink>> + Send>>),
    Sent(oneshot::Receiver<Answer>),
}

impl ReleaseJob {
    pub(crate) fn new(permit: Permit, key: Arc<str>, token: u64) -> Self {
        let until = clock::now().saturating_add(RELEASE_TIMEOUT);
        let shared = Arc::clone(permit.shared());
        Self { shared, key, token, until, permit: Some(permit), step: Step::Choose, lost: None }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// Sends the request, or waits for a session.
    fn submit(&mut self, link: Option<Arc<Link>>) {
        if let Some(link) = link {
            // The last try may have kept it.
            let permit = self.permit.take().unwrap_or_else(|| self.shared.admit_beyond(Lane::Release));
            let (caller, answer) = Caller::new(permit);
            let kind = Kind::Release { token: self.token };
            let request = Request { key: Arc::clone(&self.key), kind, until: self.until };
            match link.send(Command::Submit(request, caller)) {
                Ok(()) => return self.step = Step::Sent(answer),
                Err(Command::Submit(_, caller)) => self.permit = caller.into_permit(),
                Err(_) => {}
            }
        }
        self.wait(Duration::ZERO);
    }

    fn wait(&mut self, pause: Duration) {
        let (shared, until) = (Arc::clone(&self.shared), self.until);
        self.step = Step::Wait(Box::pin(async move {
            shared.pause(pause).await;
            let chooser = Arc::clone(&shared);
            shared.link(until, Phase::Draining, |route| route.pick(chooser.next_turn()).cloned()).await
        }));
    }

    /// A try was sent and has no answer. Gives back the end of the job, if it is one.
    fn unanswered(&mut self, why: Why) -> Option<Cause> {
        let pause = match &why {
            Why::Overdue => None,
            Why::Moved => Some(MOVED_PAUSE),
            Why::Lost(_) => Some(Duration::ZERO),
        };
        self.lost = Some(why);
        match pause.filter(|_| clock::now() < self.until) {
            None => return Some(self.unconfirmed(None)),
            Some(pause) if pause.is_zero() => self.step = Step::Choose,
            Some(pause) => self.wait(pause),
        }
        None
    }

    fn no_link(&mut self, no_link: NoLink) -> Cause {
        match no_link {
            NoLink::Closed if self.lost.is_none() => Cause::Closed,
            NoLink::Refused(trouble) if self.lost.is_none() => Cause::Refused(trouble),
            NoLink::Closed => self.unconfirmed(None),
            NoLink::Refused(trouble) => self.unconfirmed(Some(trouble)),
            NoLink::Late(trouble) => self.unconfirmed(trouble),
        }
    }

    fn unconfirmed(&mut self, trouble: Option<Arc<At<Trouble>>>) -> Cause {
        Cause::ReleaseUnconfirmed(match self.lost.take() {
            Some(Why::Lost(trouble)) => Some(trouble),
            Some(Why::Overdue | Why::Moved) | None => trouble,
        })
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        loop {
            match &mut self.step {
                Step::Choose => {
                    let link = self.shared.pick();
                    self.submit(link);
                }
                Step::Wait(link) => match ready!(link.as_mut().poll(cx)) {
                    Ok(link) => self.submit(Some(link)),
                    Err(no_link) => return Poll::Ready(Err(self.no_link(no_link))),
                },
                Step::Sent(answer) => match ready!(Pin::new(answer).poll(cx)) {
                    Ok(Answer::Released) => return Poll::Ready(Ok(())),
                    Ok(Answer::NotHeld) => {
                        let sent_before = self.lost.is_some();
                        return Poll::Ready(Err(Cause::NotHeld { sent_before }));
                    }
                    Ok(Answer::Unsent(permit)) => {
                        self.permit = Some(permit);
                        self.step = Step::Choose;
                        if clock::now() >= self.until {
                            let trouble = self.shared.directory.route().trouble.clone();
                            return Poll::Ready(Err(self.unconfirmed(trouble)));
                        }
                    }
                    Ok(Answer::Unanswered(Unanswered { why, .. })) => {
                        if let Some(cause) = self.unanswered(why) {
                            return Poll::Ready(Err(cause));
                        }
                    }
                    // No answer of a release; or the runtime took the task away unheard.
                    Ok(Answer::Granted { .. } | Answer::TimedOut | Answer::Busy | Answer::Place { .. })
                    | Err(_) => return Poll::Ready(Err(self.unconfirmed(None))),
                },
            }
        }
    }
}

impl Future for ReleaseJob {
    type Output = Result<(), TicketError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.turn(cx));
        Poll::Ready(outcome.map_err(|cause| cause.about_release(&self.key, self.token)))
    }
}

/// A release that a caller waits for. Dropped before its end, it goes on
/// without the caller.
pub(crate) struct Explicit(Option<ReleaseJob>);

impl Explicit {
    pub(crate) const fn new(job: ReleaseJob) -> Self {
        Self(Some(job))
    }
}

impl Future for Explicit {
    type Output = Result<(), TicketError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(job) = &mut self.0 else { return Poll::Pending };
        let outcome = ready!(Pin::new(job).poll(cx));
        self.0 = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Explicit {
    fn drop(&mut self) {
        if let Some(mut job) = self.0.take() {
            if matches!(job.step, Step::Wait(_)) {
                // It may hold a timer of the caller's runtime, which may be ending.
                job.step = Step::Choose;
            }
            Arc::clone(&job.shared).compensate(job);
        }
    }
}

/// The task that sees to the releases that nobody waits for.
pub(crate) async fn compensate(shared: Arc<Shared>, mut queue: mpsc::UnboundedReceiver<ReleaseJob>) {
    let mut under_way = FuturesUnordered::<ReleaseJob>::new();
    let mut stopped = std::pin::pin!(shared.reached(Phase::Stopping));
    loop {
        tokio::select! {
            () = &mut stopped => return,
            Some(outcome) = under_way.next() => {
                match outcome {
                    Ok(()) => {}
                    Err(error) if error.is_not_held() => {
                        tracing::debug!(%error, "a lock was not held any more when it was released in the background");
                    }
                    Err(error) => tracing::warn!(%error, "a lock is left to its lease"),
                }
            }
            Some(job) = queue.recv(), if under_way.len() < COMPENSATIONS_AT_A_TIME => under_way.push(job),
        }
    }
}
