//! The dialler's end of a connection: writes calls, takes answers.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::pin::pin;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::config::Limits;
use crate::frame::{Frame, FrameReader, TooLong};
use crate::outbox::Outbox;
use crate::peer::{Asked, CallError, CallResult, End};
use crate::service::{ANSWERED, FAILED};
use crate::socket::Stream;

/// Calls that are taken at a time.
const BATCH: usize = 256;

/// Why a connection ended that had been open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("nobody needs it any more")]
    Dropped,
    #[error("the other side closed it")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error("a call was not answered in time")]
    Overdue,
    #[error("{0}; is that a peer of this version?")]
    TooLong(TooLong),
    #[error("it answered what was not asked (call {id}, kind {kind}); is that a peer of this version?")]
    Unasked { id: u64, kind: u8 },
}

impl Lost {
    /// In a word, by which log lines are counted.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Closed => "closed",
            Self::Io(_) => "io",
            Self::Overdue => "overdue",
            Self::TooLong(_) => "too long",
            Self::Unasked { .. } => "unasked",
        }
    }
}

impl From<&Lost> for CallError {
    fn from(lost: &Lost) -> Self {
        Self::Closed(lost.to_string().into())
    }
}

/// A connection that has ended.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) lost: Lost,
    /// Whether the peer has answered at least one call.
    pub(crate) useful: bool,
}

/// Makes the calls that wait, and those that come, until the connection ends;
/// then all of them have ended.
pub(crate) async fn ask(
    stream: Box<dyn Stream>,
    waiting: &mut Vec<Asked>,
    calls: &mut UnboundedReceiver<Asked>,
    limits: &Limits,
) -> Over {
    let mut asking = Asking::default();
    for asked in waiting.drain(..) {
        asking.send(asked);
    }
    let lost = asking.converse(stream, calls, limits).await;
    let Asking { mut pending, useful, .. } = asking;
    pending.end_overdue(Instant::now());
    pending.end_all(&CallError::from(&lost));
    Over { lost, useful }
}

#[derive(Default)]
struct Asking {
    pending: Pending,
    outbox: Outbox,
    last_id: u64,
    useful: bool,
}

impl Asking {
    async fn converse(
        &mut self,
        stream: Box<dyn Stream>,
        calls: &mut UnboundedReceiver<Asked>,
        limits: &Limits,
    ) -> Lost {
        let (read, mut write) = tokio::io::split(stream);
        let mut reader = FrameReader::new(read, limits.max_body);
        let mut batch = Vec::new();
        let mut timer = pin!(sleep_until(Instant::now()));
        loop {
            // A timer that is early is set right when it fires.
            if let Some(first) = self.pending.first_deadline()
                && (timer.is_elapsed() || first < timer.deadline())
            {
                timer.as_mut().reset(first);
            }
            // Answers come before deadlines: what has arrived while this process
            // had no time is not late.
            tokio::select! {
                biased;
                filled = reader.fill() => {
                    match filled {
                        Ok(true) => {}
                        Ok(false) => return Lost::Closed,
                        Err(error) => return Lost::Io(error),
                    }
                    loop {
                        match reader.frame() {
                            Ok(Some(frame)) => {
                                if let Err(unasked) = self.pending.answered(&frame) {
                                    return unasked;
                                }
                                self.useful = true;
                            }
                            Ok(None) => break,
                            Err(too_long) => return Lost::TooLong(too_long),
                        }
                    }
                }
                taken = calls.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return Lost::Dropped;
                    }
                    for asked in batch.drain(..) {
                        self.send(asked);
                    }
                }
                wrote = self.outbox.write_to(&mut write), if self.outbox.pending() => {
                    if let Err(error) = wrote {
                        return Lost::Io(error);
                    }
                }
                () = &mut timer, if !timer.is_elapsed() => {
                    if self.pending.first_deadline().is_some_and(|first| first <= Instant::now()) {
                        return Lost::Overdue;
                    }
                }
            }
        }
    }

    fn send(&mut self, asked: Asked) {
        // A call that comes too late says nothing about the connection.
        if asked.deadline <= Instant::now() {
            return asked.end.with(Err(CallError::TimedOut));
        }
        self.last_id += 1;
        self.outbox.push(asked.kind, self.last_id, asked.body);
        self.pending.add(self.last_id, asked.deadline, asked.end);
    }
}

/// The calls that have not been answered, and when each must be.
#[derive(Default)]
struct Pending {
    ends: HashMap<u64, (Instant, End)>,
    due: BTreeSet<(Instant, u64)>,
}

impl Pending {
    fn add(&mut self, id: u64, deadline: Instant, end: End) {
        self.due.insert((deadline, id));
        self.ends.insert(id, (deadline, end));
    }

    fn first_deadline(&self) -> Option<Instant> {
        self.due.first().map(|(deadline, _)| *deadline)
    }

    fn answered(&mut self, frame: &Frame) -> Result<(), Lost> {
        let Frame { kind, id, ref body } = *frame;
        let result: CallResult = match kind {
            ANSWERED => Ok(body.clone()),
            FAILED => Err(CallError::Failed(String::from_utf8_lossy(body).into())),
            kind => return Err(Lost::Unasked { id, kind }),
        };
        let (deadline, end) = self.ends.remove(&id).ok_or(Lost::Unasked { id, kind })?;
        self.due.remove(&(deadline, id));
        end.with(result);
        Ok(())
    }

    fn end_overdue(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.due.first().copied()
            && deadline <= now
        {
            self.due.pop_first();
            if let Some((_, end)) = self.ends.remove(&id) {
                end.with(Err(CallError::TimedOut));
            }
        }
    }

    fn end_all(&mut self, error: &CallError) {
        self.due.clear();
        for (_, (_, end)) in self.ends.drain() {
            end.with(Err(error.clone()));
        }
    }
}
