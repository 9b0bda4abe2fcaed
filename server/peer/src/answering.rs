//! The listener's end of a connection: takes calls, writes answers.

use std::io;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::config::Limits;
use crate::frame::{Frame, FrameReader, TooLong};
use crate::outbox::Outbox;
use crate::service::{Answer, Call, Handler, Reply};
use crate::socket::Stream;

/// Bytes of answers that wait to be written before no more calls are read.
const MAX_UNSENT: usize = 1024 * 1024;

/// Why a connection ended that had been open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the other side closed it")]
    Closed,
    #[error("the other side closed it in the middle of a frame")]
    CutOff,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}; is that a peer of this version?")]
    TooLong(TooLong),
    #[error("its calls were not answered, or its answers not taken, for {0:?}")]
    Stalled(std::time::Duration),
}

impl Ended {
    /// In a word, if that is worth a warning.
    pub(crate) const fn warning(&self) -> Option<&'static str> {
        match self {
            Self::Closed | Self::CutOff | Self::Io(_) => None,
            Self::TooLong(_) => Some("too long"),
            Self::Stalled(_) => Some("stalled"),
        }
    }
}

/// Serves a peer until the connection ends.
pub(crate) async fn answer_calls(
    stream: Box<dyn Stream>,
    mut handler: Box<dyn Handler>,
    limits: &Limits,
) -> Ended {
    let (read, mut write) = tokio::io::split(stream);
    let mut reader = FrameReader::new(read, limits.max_body);
    let mut outbox = Outbox::default();
    // Holds no more answers than there are calls in flight.
    let (replies, mut answers) = mpsc::unbounded_channel::<Answer>();
    let mut in_flight = 0_usize;
    let mut moved = Instant::now();
    loop {
        // Answers that are here already count before another call is taken.
        let may_read = loop {
            while let Ok(answer) = answers.try_recv() {
                in_flight -= 1;
                outbox.push(answer.kind, answer.id, answer.body);
            }
            if in_flight >= limits.calls || outbox.bytes() > MAX_UNSENT {
                break false;
            }
            match reader.frame() {
                Ok(Some(Frame { kind, id, body })) => {
                    in_flight += 1;
                    let reply = Reply::new(id, limits.max_body, replies.clone());
                    handler.call(Call { kind, body, reply });
                }
                Ok(None) => break true,
                Err(too_long) => return Ended::TooLong(too_long),
            }
        };
        tokio::select! {
            biased;
            Some(answer) = answers.recv() => {
                in_flight -= 1;
                outbox.push(answer.kind, answer.id, answer.body);
                moved = Instant::now();
            }
            wrote = outbox.write_to(&mut write), if outbox.pending() => match wrote {
                Ok(()) => moved = Instant::now(),
                Err(error) => return Ended::Io(error),
            },
            filled = reader.fill(), if may_read => match filled {
                Ok(true) => moved = Instant::now(),
                Ok(false) if reader.inside() => return Ended::CutOff,
                Ok(false) => return Ended::Closed,
                Err(error) => return Ended::Io(error),
            },
            () = sleep_until(moved + limits.stall_timeout), if !may_read => {
                return Ended::Stalled(limits.stall_timeout);
            }
        }
    }
}
