//! The way back: from the fate of a request to whoever waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::oneshot;

use crate::broker::Permit;
use crate::session::{Fate, Kind, Reply, Request, Why};
use crate::ticket::Hold;

/// How a request ended, as its caller is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The lock, until `ends_at`. Whoever drops this unread releases it.
    Granted {
        hold: Hold,
        ends_at: u64,
    },
    TimedOut,
    Busy,
    Place {
        place: u32,
        waiters: u32,
    },
    Released,
    NotHeld,
    /// Nothing was sent; the permit comes back for the next try.
    Unsent(Permit),
    Unanswered(Unanswered),
}

/// A byte was handed over and no bound answer came.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) sent_at: u64,
    pub(crate) why: Why,
    /// For an acquire: who may take its grant, should there be one.
    pub(crate) claim: Arc<Claim>,
}

/// Decides who gets the grant of an acquire that was given up as unanswered: a
/// caller who asks again (verify), or the core, which releases a late one.
#[derive(Debug, Default)]
pub(crate) struct Claim(AtomicU8);

const OPEN: u8 = 0;
const VERIFIED: u8 = 1;
const RELEASED: u8 = 2;

impl Claim {
    /// Whether a verify handed the ticket out.
    pub(crate) fn is_verified(&self) -> bool {
        self.0.load(Ordering::Acquire) == VERIFIED
    }

    fn take(&self, as_what: u8) -> bool {
        self.0.compare_exchange(OPEN, as_what, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Whoever waits for an answer.
#[derive(Debug)]
pub(crate) struct Caller {
    answer: Option<oneshot::Sender<Answer>>,
    /// Held as long as the session keeps the request, records included.
    permit: Option<Permit>,
    claim: Option<Arc<Claim>>,
}

impl Caller {
    pub(crate) fn new(permit: Permit) -> (Self, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Self { answer: Some(sender), permit: Some(permit), claim: None }, receiver)
    }

    /// For the verify of an acquire that went unanswered.
    pub(crate) fn verifying(permit: Permit, claim: Arc<Claim>) -> (Self, oneshot::Receiver<Answer>) {
        let (mut caller, receiver) = Self::new(permit);
        caller.claim = Some(claim);
        (caller, receiver)
    }

    /// The session never took the request.
    pub(crate) fn into_permit(mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// An answer that nobody takes is dropped, and a grant in it is released by that.
    fn send(&mut self, answer: Answer) {
        if let Some(sender) = self.answer.take() {
            drop(sender.send(answer));
        }
    }

    fn granted(&mut self, request: &Request, token: u64, ends_at: u64) {
        if let Some(claim) = &self.claim {
            let verify = matches!(request.kind, Kind::Verify { .. }) && self.answer.is_some();
            if !claim.take(if verify { VERIFIED } else { RELEASED }) {
                // Somebody else has taken it: for this caller there is none.
                return self.send(Answer::Busy);
            }
        }
        if let Some(permit) = self.permit.take() {
            let hold = Hold::new(permit, Arc::clone(&request.key), token);
            self.send(Answer::Granted { hold, ends_at });
        }
    }
}

impl Reply for Caller {
    fn tell(&mut self, request: &Request, fate: Fate) {
        match fate {
            Fate::Granted { token, ends_at } => self.granted(request, token, ends_at),
            Fate::TimedOut => self.send(Answer::TimedOut),
            Fate::Busy => self.send(Answer::Busy),
            Fate::Place { place, waiters } => self.send(Answer::Place { place, waiters }),
            Fate::Released => self.send(Answer::Released),
            Fate::NotHeld => self.send(Answer::NotHeld),
            Fate::Unsent => {
                if let Some(permit) = self.permit.take() {
                    self.send(Answer::Unsent(permit));
                }
            }
            Fate::Unanswered { sent_at, why } => {
                let claim = Arc::clone(self.claim.get_or_insert_default());
                self.send(Answer::Unanswered(Unanswered { sent_at, why, claim }));
            }
        }
    }
}
