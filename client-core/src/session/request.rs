//! What a session is asked, and how each request ends.

use std::sync::Arc;

use ticketing_protocol::{ClientFrame, Key};

use crate::clock::{MILLISECOND, SECOND};
use crate::trouble::{At, Trouble};

/// How much of a lease its holder counts on; the rest is for the drift of two clocks.
pub(crate) const COUNTED_PER_MILLE: u64 = 995;

/// A request. `until` is always the caller's own deadline.
#[derive(Debug)]
pub struct Request {
    /// A legal key; checked where it came in.
    pub key: Arc<str>,
    /// What is asked.
    pub kind: Kind,
    /// While not one byte was handed to the socket, the request ends here.
    pub until: u64,
}

/// Which request it is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Queue for the key.
    Acquire {
        /// New for every acquire.
        owner: u64,
        /// The wait that the caller asked for; 0: one immediate try. On the wire it
        /// is what is left of it until `until`.
        wait_secs: u8,
        /// The lease that the caller asked for.
        lease_secs: u8,
    },
    /// Settle an acquire whose answer was lost.
    Verify {
        /// Owner of that acquire.
        owner: u64,
        /// Its lease.
        lease_secs: u8,
        /// When the first byte of that acquire was handed over.
        sent_at: u64,
    },
    /// Ask for a place in the queue.
    Place {
        /// Owner of the acquire.
        owner: u64,
    },
    /// Give the lock back.
    Release {
        /// The fencing token of the grant.
        token: u64,
    },
}

/// What an answer is bound by, besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bond {
    /// An acquire, or a verify, which never meets its acquire on one connection.
    Owner(u64),
    /// A question for a place.
    Place(u64),
    /// A release.
    Token(u64),
}

impl Request {
    pub(crate) const fn bond(&self) -> Bond {
        match self.kind {
            Kind::Acquire { owner, .. } | Kind::Verify { owner, .. } => Bond::Owner(owner),
            Kind::Place { owner } => Bond::Place(owner),
            Kind::Release { token } => Bond::Token(token),
        }
    }

    /// The wait to ask for now: what is left, in whole seconds, rounded up.
    pub(crate) fn wait_secs(&self, now: u64) -> u8 {
        match self.kind {
            Kind::Acquire { wait_secs, .. } if wait_secs > 0 => {
                // `now` may have been read a little before the acquire began.
                let left = self.until.saturating_sub(now).div_ceil(SECOND).max(1);
                u8::try_from(left).unwrap_or(u8::MAX).min(wait_secs)
            }
            Kind::Acquire { .. } | Kind::Verify { .. } | Kind::Place { .. } | Kind::Release { .. } => 0,
        }
    }

    /// The frame, as it leaves now.
    pub(crate) fn frame<'a>(&self, key: Key<'a>, now: u64) -> ClientFrame<'a> {
        match self.kind {
            Kind::Acquire { owner, lease_secs, .. } => {
                ClientFrame::Acquire { wait: self.wait_secs(now), lease: lease_secs, owner, key }
            }
            Kind::Verify { owner, .. } => ClientFrame::Verify { owner, key },
            Kind::Place { owner } => ClientFrame::Place { owner, key },
            Kind::Release { token } => ClientFrame::Release { token, key },
        }
    }

    /// Up to when the holder may surely act, for a grant of a request that was
    /// handed over at `sent_at`. The server began to count no earlier than that moment.
    pub(crate) const fn ends_at(&self, sent_at: u64, ends_ms: u32) -> u64 {
        let (since, lease_secs) = match self.kind {
            Kind::Acquire { lease_secs, .. } => (sent_at, lease_secs),
            Kind::Verify { lease_secs, sent_at, .. } => (sent_at, lease_secs),
            Kind::Place { .. } | Kind::Release { .. } => (sent_at, 0),
        };
        let ms = if ends_ms == 0 { lease_secs as u64 * 1000 } else { ends_ms as u64 };
        since.saturating_add(ms * (MILLISECOND / 1000 * COUNTED_PER_MILLE))
    }
}

/// How a request ended on this session.
#[derive(Clone, Debug)]
pub enum Fate {
    /// Granted; the holder may act until `ends_at`.
    Granted {
        /// The fencing token.
        token: u64,
        /// On the clock of the session.
        ends_at: u64,
    },
    /// The wait ran out.
    TimedOut,
    /// Not acquired, and never will be.
    Busy,
    /// Where the acquire stands.
    Place {
        /// 1 is the head of the queue; 0: not queued.
        place: u32,
        /// How many wait for the key.
        waiters: u32,
    },
    /// Released.
    Released,
    /// Not held under that token.
    NotHeld,
    /// Not one byte was handed to the socket: it may go on elsewhere.
    Unsent,
    /// A byte was handed over at `sent_at` and no bound answer came.
    Unanswered {
        /// The moment just before its first byte was handed over.
        sent_at: u64,
        /// Why there is no answer.
        why: Why,
    },
}

/// Why no answer came.
#[derive(Clone, Debug)]
pub enum Why {
    /// In time; the session lives on and still expects it.
    Overdue,
    /// The node does not lead: it cannot serve this. The session lives on.
    Moved,
    /// The connection ended.
    Lost(Arc<At<Trouble>>),
}

/// Whoever is to be told how a request ended.
pub trait Reply {
    /// Called once; and once more with the late answer, if the first call said
    /// [`Fate::Unanswered`] while the session lived on.
    fn tell(&mut self, request: &Request, fate: Fate);
}
