//! Clearing up an acquire whose answer was lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::Instrument as _;

use crate::TicketError;
use crate::broker::{Lane, Lifeline, NoLink, Phase, Route};
use crate::clock::{self, nanos};
use crate::error::{Cause, Invalid};
use crate::input::Wish;
use crate::link::{Answer, Caller, Claim, Command, Link};
use crate::session::{Kind, Request, Why};
use crate::ticket::Ticket;
use crate::trouble::{At, Trouble};

/// Before the same question is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// How an acquire that was cleared up stands.
#[derive(Debug)]
pub enum Verdict {
    /// The lock is held after all.
    Held(Ticket),
    /// It was not acquired, and never will be.
    NotAcquired,
}

/// All that is needed to ask how an acquire went.
#[derive(Clone, Debug)]
pub(crate) struct Uncertain {
    /// An error that lies around keeps no connection open.
    pub(crate) lifeline: Weak<Lifeline>,
    pub(crate) key: Arc<str>,
    pub(crate) owner: u64,
    pub(crate) wish: Wish,
    /// The moment before the first byte of the acquire was handed over.
    pub(crate) sent_at: u64,
    pub(crate) claim: Arc<Claim>,
    /// The session that still owes the answer of the acquire, and so cannot be asked.
    pub(crate) asked: Option<Arc<Link>>,
}

impl Uncertain {
    pub(crate) async fn verify(&self, timeout: Duration) -> Result<Verdict, TicketError> {
        let span = tracing::debug_span!("verify", key = &*self.key, owner = self.owner);
        self.ask(timeout).instrument(span).await.map_err(|cause| cause.about_acquire(&self.key, self.owner))
    }

    async fn ask(&self, timeout: Duration) -> Result<Verdict, Cause> {
        let lifeline = self.lifeline.upgrade().ok_or(Cause::Closed)?;
        let shared = &lifeline.0;
        let until = clock::now().saturating_add(nanos(timeout));
        while clock::now() < until {
            let choose = |route: &Route| {
                let link = route.pick_but(shared.next_turn(), self.asked.as_ref());
                link.filter(|_| route.leads).cloned()
            };
            let link = match Arc::clone(shared).link(until, Phase::Open, choose).await {
                Ok(link) => link,
                Err(NoLink::Closed) => return Err(Cause::Closed),
                Err(NoLink::Refused(trouble)) => return Err(self.still_unknown(Some(trouble))),
                Err(NoLink::Late(trouble)) => return Err(self.still_unknown(trouble)),
            };
            if !link.greeted.extension {
                return Err(Cause::Unsupported);
            }
            if self.claim.is_verified() {
                return Err(Cause::Invalid(Invalid::VerifiedBefore));
            }
            let full = || Cause::ClientCapacity(shared.max_pending());
            let permit = shared.admit(Lane::Acquire).ok_or_else(full)?;
            let (caller, answer) = Caller::verifying(permit, Arc::clone(&self.claim));
            let Wish { lease_secs, .. } = self.wish;
            let kind = Kind::Verify { owner: self.owner, lease_secs, sent_at: self.sent_at };
            let request = Request { key: Arc::clone(&self.key), kind, until };
            if link.send(Command::Submit(request, caller)).is_err() {
                continue;
            }
            match answer.await {
                Ok(Answer::Granted { hold, ends_at }) => {
                    let domain = link.greeted.domain;
                    let lifeline = Arc::clone(&lifeline);
                    let ticket = Ticket::accept(hold, lifeline, self.owner, domain, ends_at, self.wish)?;
                    return Ok(Verdict::Held(ticket));
                }
                Ok(Answer::Busy) if self.claim.is_verified() => {
                    return Err(Cause::Invalid(Invalid::VerifiedBefore));
                }
                Ok(Answer::Busy) => return Ok(Verdict::NotAcquired),
                Ok(Answer::Unanswered(unanswered)) if matches!(unanswered.why, Why::Overdue) => {
                    return Err(self.still_unknown(None));
                }
                // That session could not say. The others are no answers of a verify.
                Ok(Answer::Unanswered(_) | Answer::Unsent(_))
                | Ok(Answer::TimedOut | Answer::Place { .. } | Answer::Released | Answer::NotHeld)
                | Err(_) => shared.pause(PAUSE).await,
            }
        }
        Err(self.still_unknown(None))
    }

    fn still_unknown(&self, why: Option<Arc<At<Trouble>>>) -> Cause {
        Cause::Indeterminate { why, uncertain: Box::new(self.clone()) }
    }
}
