//! How a batch gets into the log, and what becomes of it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use ticketing_engine::{Fate, Office, Seq};
use tokio::time::sleep;

use crate::born::Born;
use crate::node::Inner;
use crate::report::Report;
use crate::types::{Applied, Command, Types};

/// Between two attempts of a leader that has not heard of a majority lately.
const RETRY: Duration = Duration::from_millis(20);

/// A batch on its way into the log.
pub(crate) struct Proposal {
    pub(crate) inner: Arc<Inner>,
    pub(crate) office: Office,
    pub(crate) seq: Seq,
    pub(crate) record: Bytes,
    pub(crate) told: Box<dyn FnOnce(Fate) + Send + Sync>,
}

impl Proposal {
    pub(crate) async fn send(self) {
        let Some(running) = self.inner.running() else { return (self.told)(Fate::Unknown) };
        let Office { term, run } = self.office;
        let born = Born::at((self.inner.config.clock)());
        let command = Command::Batch { term, run, seq: self.seq, record: self.record.clone(), born };
        let report = if fault!(TellsBeforeTheMajority) {
            (self.told)(Fate::Applied);
            Report::to(drop)
        } else {
            Report::to(move |result| self.settle(result))
        };
        // If openraft has stopped, it drops the report, which says that nobody knows.
        let _ = running.raft.write(command).with_leader(term).responder(report).await;
    }

    fn settle(self, result: Option<ClientWriteResult<Types>>) {
        let fate = fate(result);
        if fate == Fate::Refused && self.may_still_be_next() {
            // A majority may be heard of again: until then, whoever waits goes on waiting.
            tokio::spawn(self.again());
        } else {
            (self.told)(fate);
        }
    }

    fn again(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            sleep(RETRY).await;
            self.send().await;
        })
    }

    /// Whether the office still holds, and its batches were applied up to some one
    /// before this one. So this one was refused because the leader had not heard of
    /// a majority lately, or skipped because one before it was.
    fn may_still_be_next(&self) -> bool {
        let holds = self.inner.standing.borrow().office == Some(self.office);
        let Some(running) = self.inner.running().filter(|_| holds) else { return false };
        let place = running.machine.view().replica.place();
        place.office == Some(self.office) && place.batches < self.seq
    }
}

/// Only what openraft guarantees is taken for certain.
pub(crate) fn fate(result: Option<ClientWriteResult<Types>>) -> Fate {
    match result {
        Some(Ok(done)) => match done.response() {
            Applied::Done | Applied::Seated(_) => Fate::Applied,
            Applied::Skipped => Fate::Refused,
        },
        // Never appended, which is documented.
        Some(Err(ClientWriteError::ForwardToLeader(_))) => Fate::Refused,
        Some(Err(
            ClientWriteError::LogEntryDiscarded(_)
            | ClientWriteError::ChangeMembershipError(_)
            | ClientWriteError::PreconditionFailed(_),
        ))
        | None => Fate::Unknown,
    }
}
