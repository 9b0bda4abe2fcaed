//! A peer that calls are made to.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::config::Config;
use crate::dialler::Dialler;
use crate::frame::HEADER;
use crate::identity::Party;
use crate::refusal::Refusal;

/// What becomes of a call.
pub type CallResult = Result<Bytes, CallError>;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no connection. The call was never sent.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(Arc<str>),
    /// One of the two ends does not want the other. The call was never sent.
    #[error("no connection to the peer: {0}")]
    Refused(Refusal),
    /// Too many calls, or bytes of calls, wait for answers. The call was never sent.
    #[error("too many calls to the peer wait for an answer")]
    Overloaded,
    /// The body is larger than bodies may be. The call was never sent.
    #[error("the body of the call has {bytes} bytes; the most is {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// [`Limits::max_body`](crate::Limits::max_body).
        max: u32,
    },
    /// No answer came before the deadline. The peer may have done what was asked.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The connection ended, or the [`Peer`] was dropped, before an answer came.
    /// The peer may have done what was asked.
    #[error("the connection to the peer ended: {0}")]
    Closed(Arc<str>),
    /// The peer says that it failed, and why.
    #[error("the peer failed: {0}")]
    Failed(Arc<str>),
}

/// One connection to a peer: opened when there is something to say, opened anew
/// after it was lost. Clones share it; it is closed with the last one, and what
/// was not answered then ends as [`CallError::Closed`].
///
/// After an attempt that failed there is a pause, of 20 ms at first and 500 ms
/// at most, in which calls fail at once.
///
/// Calls of one peer share a connection, so that a short one waits for the bytes
/// of a large one before it. Bulk, as snapshots are, goes in pieces of at most
/// 1 MiB, and better through a `Peer` of its own.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Holds no more than there is room for.
    calls: mpsc::UnboundedSender<Asked>,
    room: Arc<Room>,
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) kind: u8,
    pub(crate) body: Bytes,
    pub(crate) deadline: Instant,
    pub(crate) end: End,
}

/// The caller who waits for a call, and the room that the call takes until then.
#[derive(Debug)]
pub(crate) struct End {
    caller: oneshot::Sender<CallResult>,
    _taken: [OwnedSemaphorePermit; 2],
}

impl End {
    pub(crate) fn with(self, result: CallResult) {
        // A caller that no longer waits needs no answer.
        let _ = self.caller.send(result);
    }
}

/// Room for calls that have not been answered.
#[derive(Debug)]
struct Room {
    max_body: u32,
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl Room {
    fn take(&self, body_bytes: usize) -> Result<[OwnedSemaphorePermit; 2], CallError> {
        let max = self.max_body;
        let weight = match u32::try_from(body_bytes) {
            Ok(bytes) if bytes <= max => bytes,
            Ok(_) | Err(_) => return Err(CallError::TooLarge { bytes: body_bytes, max }),
        };
        let call = Arc::clone(&self.calls).try_acquire_owned();
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(weight);
        call.and_then(|call| Ok([call, bytes?])).map_err(|_| CallError::Overloaded)
    }
}

impl Peer {
    /// A peer at `address`, `host:port`. Dials as `from`, and whoever answers
    /// must be `meant`. Nothing is dialled before the first call.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn new(address: impl Into<Arc<str>>, from: Party, meant: Party, config: Config) -> Self {
        let limits = config.limits;
        let bytes = limits.call_bytes.max(limits.max_body as usize + HEADER);
        let semaphore = |room: usize| Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS)));
        let room =
            Room { max_body: limits.max_body, calls: semaphore(limits.calls), bytes: semaphore(bytes) };
        let (calls, asked) = mpsc::unbounded_channel();
        tokio::spawn(Dialler::new(address.into(), from, meant, config, asked).run());
        Self { calls, room: Arc::new(room) }
    }

    /// Makes a call. It is sent behind those that were made before, whether the
    /// future is polled or not; to drop the future gives up the answer alone.
    ///
    /// A deadline that passes says that the connection is no good: it is dropped
    /// with all calls on it, and the next call opens another one. Give what takes
    /// its time a deadline that fits, on a `Peer` of its own if need be.
    ///
    /// The future ends with a [`CallError`] where there is no answer.
    pub fn call(&self, kind: u8, body: impl Into<Bytes>, deadline: Instant) -> PendingCall {
        let body = body.into();
        let (caller, result) = oneshot::channel();
        match self.room.take(body.len()) {
            Ok(taken) => {
                // If there is no task any more, the caller's end is dropped here.
                let _ = self.calls.send(Asked { kind, body, deadline, end: End { caller, _taken: taken } });
            }
            Err(error) => {
                let _ = caller.send(Err(error));
            }
        }
        PendingCall(result)
    }
}

/// A call that was made; becomes its result.
#[derive(Debug)]
#[must_use = "nobody learns what becomes of the call"]
pub struct PendingCall(oneshot::Receiver<CallResult>);

impl Future for PendingCall {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let gone = |_| Err(CallError::Closed("the runtime of the peer ended".into()));
        Pin::new(&mut self.0).poll(cx).map(|result| result.unwrap_or_else(gone))
    }
}
