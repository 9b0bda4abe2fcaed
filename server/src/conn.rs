//! What the session of a connection and the driver share: the answers on their
//! way out, and how much is on its way in.
//!
//! A connection has at most one batch of requests with the driver. That bounds
//! every queue between them, and makes the driver go round the connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ticketing_engine::{Answer, ConnId};
use ticketing_protocol::{Extension, Key, Reason, ServerFrame};

use crate::requests::{Owed, Requests};

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Without a word: answers that are ready leave, nothing else.
    Quiet,
    /// At once: the socket is of no more use.
    Broken,
    /// Answers that are ready leave, then this reason.
    Because(Reason),
    /// The client does not read: as much of the answers as it took stays, then `overloaded`.
    Unread,
}

/// A grant of which no byte was handed to the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostGrant {
    pub(crate) token: u64,
    pub(crate) key: Box<[u8]>,
}

/// What goes from a session to the driver.
#[derive(Debug)]
pub(crate) enum Message {
    /// Requests that arrived.
    Requests(Arc<Conn>, Requests),
    /// The client has said its last word: it is told what was decided, and then it is
    /// [`settled`](State::settled).
    Leaving(Arc<Conn>),
    /// The connection ended.
    Closed(ConnId),
    /// These grants never left.
    Lost(Vec<LostGrant>),
    /// Not from a session: the server is draining.
    Drain,
}

/// One connection, as its session and the driver see it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    extension: Extension,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Encoded answers, whole frames.
    frames: Vec<u8>,
    owed: Owed,
    /// A batch of requests is with the driver.
    busy: bool,
    /// Nothing more will be decided for it, and all that was is in `frames`.
    settled: bool,
    /// Nothing that is put into `frames` any more will be sent.
    closed: bool,
    /// The driver wants the connection to end.
    ending: Option<Ending>,
    /// The session, if it waits for something of the above.
    session: Option<Waker>,
}

/// What a session needs to know to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) owed: Owed,
    pub(crate) busy: bool,
    /// A connection that is leaving has its last answers.
    pub(crate) settled: bool,
    pub(crate) ending: Option<Ending>,
    /// Bytes of answers that it has not taken.
    pub(crate) queued: usize,
}

/// Most bytes that the buffers of an idle connection keep.
pub(crate) const KEPT_BYTES: usize = 4096;

impl Conn {
    pub(crate) fn new(id: ConnId, extension: Extension) -> Self {
        Self { id, extension, shared: Mutex::default() }
    }

    pub(crate) const fn extension(&self) -> Extension {
        self.extension
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // What is behind it is whole at every moment.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session hands requests over. Returns how many answers were owed before.
    pub(crate) fn hand_over(&self, owed: Owed) -> Owed {
        let mut shared = self.lock();
        let before = shared.owed;
        shared.owed.acquires += owed.acquires;
        shared.owed.others += owed.others;
        shared.busy = true;
        before
    }

    /// The session takes the answers, if `unsent` is empty, and waits for more:
    /// `session` is woken when something changes.
    pub(crate) fn take(&self, unsent: &mut Vec<u8>, session: &Waker) -> State {
        let mut shared = self.lock();
        if unsent.is_empty() {
            std::mem::swap(&mut shared.frames, unsent);
        }
        if !shared.session.as_ref().is_some_and(|waker| waker.will_wake(session)) {
            shared.session = Some(session.clone());
        }
        let Shared { owed, busy, settled, ending, .. } = *shared;
        State { owed, busy, settled, ending, queued: shared.frames.len() }
    }

    /// The session takes the last answers: of a grant that is decided from now
    /// on, the driver itself knows that it never left.
    pub(crate) fn close(&self, unsent: &mut Vec<u8>) {
        let mut shared = self.lock();
        shared.closed = true;
        shared.session = None;
        unsent.append(&mut shared.frames);
        shared.frames = Vec::new();
    }

    /// The driver gives answers. If this node does not lead, `elsewhere` is where
    /// the leader is, or empty.
    pub(crate) fn answers<'a>(&'a self, elsewhere: Option<&'a str>) -> Answers<'a> {
        Answers { shared: self.lock(), extension: self.extension, elsewhere }
    }

    /// The driver is through with the batch. Returns whom to wake.
    pub(crate) fn served(&self) -> Option<Waker> {
        let mut shared = self.lock();
        shared.busy = false;
        shared.session.take()
    }

    /// The client that is leaving has its last answers. Returns whom to wake.
    pub(crate) fn settled(&self) -> Option<Waker> {
        let mut shared = self.lock();
        shared.settled = true;
        shared.session.take()
    }
}

/// Gives answers to a connection.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    shared: MutexGuard<'a, Shared>,
    extension: Extension,
    elsewhere: Option<&'a str>,
}

impl Answers<'_> {
    /// # Errors
    /// The grant, if the answer was one and the connection has ended.
    pub(crate) fn push(&mut self, answer: Answer<'_>) -> Result<(), LostGrant> {
        let shared = &mut *self.shared;
        if shared.closed {
            return match answer {
                Answer::Granted { token, key, .. } => Err(LostGrant { token, key: key.into() }),
                Answer::TimedOut { .. }
                | Answer::Busy { .. }
                | Answer::Released { .. }
                | Answer::NotHeld { .. }
                | Answer::Place { .. }
                | Answer::Verified { .. }
                | Answer::VerifiedBusy { .. }
                | Answer::NotLeader
                | Answer::CloseUnknown
                | Answer::CloseOverloaded => Ok(()),
            };
        }
        let owed = match answer {
            Answer::Granted { .. } | Answer::TimedOut { .. } | Answer::Busy { .. } => {
                &mut shared.owed.acquires
            }
            Answer::Released { .. }
            | Answer::NotHeld { .. }
            | Answer::Place { .. }
            | Answer::Verified { .. }
            | Answer::VerifiedBusy { .. }
            | Answer::NotLeader
            | Answer::CloseUnknown
            | Answer::CloseOverloaded => &mut shared.owed.others,
        };
        *owed = owed.saturating_sub(1);
        match frame(answer, self.extension, self.elsewhere.unwrap_or_default()) {
            Ok(frame) => frame.encode(&mut shared.frames),
            Err(ending) => shared.ending = shared.ending.or(Some(ending)),
        }
        // An acquire is first told that it got nothing, then where to ask.
        if let (Answer::Busy { .. }, Some(address)) = (answer, self.elsewhere) {
            ServerFrame::Moved { address }.encode(&mut shared.frames);
        }
        Ok(())
    }

    /// The connection is done with for now. Returns whom to wake.
    pub(crate) fn done(mut self) -> Option<Waker> {
        self.shared.session.take()
    }
}

/// The frame that says this, or the end of the connection that says it.
fn frame<'a>(answer: Answer<'a>, extension: Extension, leader: &'a str) -> Result<ServerFrame<'a>, Ending> {
    // Every key of the engine came in through a `Key`. Were one broken all the
    // same, the outcome would stay unsaid, which is what an end without a word means.
    let legal = |key| Key::from_bytes(key).map_err(|_| Ending::Quiet);
    Ok(match answer {
        Answer::Granted { token, owner, ends_ms, key } => match extension {
            Extension::Off => ServerFrame::Granted { token, owner, key: legal(key)? },
            Extension::On => ServerFrame::GrantedUntil { token, owner, ends_ms, key: legal(key)? },
        },
        Answer::TimedOut { owner, key } => ServerFrame::TimedOut { owner, key: legal(key)? },
        Answer::Busy { owner, key } | Answer::VerifiedBusy { owner, key } => {
            ServerFrame::Busy { owner, key: legal(key)? }
        }
        Answer::Released { token, key } => ServerFrame::Released { token, key: legal(key)? },
        Answer::NotHeld { token, key } => ServerFrame::NotHeld { token, key: legal(key)? },
        Answer::Place { owner, place, waiters, key } => {
            ServerFrame::Place { owner, place, waiters, key: legal(key)? }
        }
        Answer::Verified { token, owner, key } => {
            ServerFrame::GrantedUntil { token, owner, ends_ms: 0, key: legal(key)? }
        }
        Answer::NotLeader => ServerFrame::Moved { address: leader },
        Answer::CloseUnknown => return Err(Ending::Quiet),
        Answer::CloseOverloaded => return Err(Ending::Because(Reason::Overloaded)),
    })
}
