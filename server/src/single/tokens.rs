//! Which tokens may be given out, and how more are reserved before they are needed.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ticketing_protocol::handshake::Domain;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{error, info};

use super::data_dir::{DataDir, Record};

/// How many tokens are reserved at a time: seconds of work at full speed, so
/// that no request waits for the disk.
const BLOCK: u64 = 1 << 22;

/// How long after a failed reservation the next one is tried.
const RETRY: Duration = Duration::from_secs(1);

/// The tokens that may be given out.
#[derive(Debug)]
pub(crate) struct Tokens {
    ceiling: u64,
    disk: Option<(Arc<DataDir>, Domain)>,
    /// A reservation, with the new ceiling.
    under_way: Option<JoinHandle<u64>>,
}

pub(super) const fn next_ceiling(reserved: u64) -> u64 {
    reserved.saturating_add(BLOCK)
}

impl Tokens {
    /// All there are.
    pub(crate) const fn unlimited() -> Self {
        Self { ceiling: u64::MAX, disk: None, under_way: None }
    }

    /// Up to `ceiling`, which is on disk; more as they are needed.
    pub(super) const fn reserved(dir: Arc<DataDir>, domain: Domain, ceiling: u64) -> Self {
        Self { ceiling, disk: Some((dir, domain)), under_way: None }
    }

    /// The last token that may be given out.
    pub(crate) const fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Whether `needed` tokens from `next` on may be given out, or no more can ever be reserved.
    pub(crate) const fn suffice(&self, next: u64, needed: u64) -> bool {
        self.ceiling == u64::MAX || next.saturating_add(needed.saturating_sub(1)) <= self.ceiling
    }

    /// Starts the next reservation, if less than half a block is left.
    pub(crate) fn reserve_ahead(&mut self, next: u64) {
        if self.under_way.is_some() || self.suffice(next, BLOCK / 2) {
            return;
        }
        if let Some((dir, domain)) = &self.disk {
            let record = Record { domain: *domain, reserved: next_ceiling(self.ceiling) };
            self.under_way = Some(tokio::spawn(reserve(Arc::clone(dir), record)));
        }
    }

    /// Waits for the reservation that is under way, for ever if there is none.
    /// Returns the new ceiling. Nothing is lost if it is dropped.
    pub(crate) async fn more(&mut self) -> u64 {
        match &mut self.under_way {
            Some(task) => {
                // A task that was cut off, as at the end of the process, reserved nothing.
                self.ceiling = task.await.unwrap_or(self.ceiling);
                self.under_way = None;
                self.ceiling
            }
            None => pending().await,
        }
    }
}

/// Writes the record, however long it takes to succeed: a full disk is no
/// reason to give out what is not reserved.
async fn reserve(dir: Arc<DataDir>, record: Record) -> u64 {
    let mut failures = 0_u32;
    loop {
        let dir = Arc::clone(&dir);
        match spawn_blocking(move || dir.write(&record)).await {
            Ok(Ok(())) => break,
            Ok(Err(error)) if failures == 0 => {
                error!(%error, "no more tokens can be reserved; grants stop when the reserved ones are used up, and go on when this file can be written again");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        failures = failures.saturating_add(1);
        tokio::time::sleep(RETRY).await;
    }
    if failures > 0 {
        info!(failures, "tokens can be reserved again");
    }
    record.reserved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single::Single;

    #[tokio::test]
    async fn more_are_reserved_before_they_are_needed_and_on_disk_before_they_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Single::durable(folder.path()).unwrap();
        let first = run.tokens.ceiling();
        run.tokens.reserve_ahead(run.first_token);
        assert!(run.tokens.under_way.is_none(), "a whole block is left");
        assert!(run.tokens.suffice(first - 10, 11) && !run.tokens.suffice(first - 10, 12));

        run.tokens.reserve_ahead(first - 10);
        let more = run.tokens.more().await;
        assert_eq!((more, run.tokens.ceiling()), (first + BLOCK, first + BLOCK));
        drop(run);
        assert!(Single::durable(folder.path()).unwrap().first_token > more);
    }

    #[tokio::test]
    async fn a_disk_that_cannot_be_written_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Single::durable(folder.path()).unwrap();
        let first = run.tokens.ceiling();
        let obstacle = folder.path().join("tokens.new");
        std::fs::create_dir(&obstacle).unwrap();
        run.tokens.reserve_ahead(first);
        assert!(tokio::time::timeout(Duration::from_millis(50), run.tokens.more()).await.is_err());
        assert_eq!(run.tokens.ceiling(), first);
        std::fs::remove_dir(&obstacle).unwrap();
        assert_eq!(run.tokens.more().await, first + BLOCK);
    }

    #[test]
    fn the_last_token_of_all_is_no_reason_to_wait() {
        let tokens = Tokens::unlimited();
        assert!(tokens.suffice(u64::MAX, u64::MAX));
    }
}
