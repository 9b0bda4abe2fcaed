//! Which tokens may be given out, and how more are reserved before they are needed.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ticketing_protocol::handshake::Domain;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tracing::{error, info};

use super::data_dir::{DataDir, DataDirError, Record};

/// How many tokens are reserved at a time: seconds of work at full speed, so
/// that no request waits for the disk.
const BLOCK: u64 = 1 << 22;

/// How long after a failed reservation the next one is tried.
const RETRY: Duration = Duration::from_secs(1);

/// How long a reservation is worth waiting for. After that the disk counts as failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tokens that may be given out.
#[derive(Debug)]
pub(crate) struct Tokens {
    ceiling: u64,
    disk: Option<(Arc<DataDir>, Domain)>,
    under_way: Option<Reservation>,
    failed_at: Option<Instant>,
}

/// A reservation that is being written, with the new ceiling.
#[derive(Debug)]
struct Reservation {
    started: Instant,
    task: JoinHandle<Result<u64, DataDirError>>,
}

pub(super) const fn next_ceiling(reserved: u64) -> u64 {
    reserved.saturating_add(BLOCK)
}

impl Tokens {
    /// All there are.
    pub(crate) const fn unlimited() -> Self {
        Self { ceiling: u64::MAX, disk: None, under_way: None, failed_at: None }
    }

    /// Up to `ceiling`, which is on disk; more as they are needed.
    pub(super) const fn reserved(dir: Arc<DataDir>, domain: Domain, ceiling: u64) -> Self {
        Self { ceiling, disk: Some((dir, domain)), under_way: None, failed_at: None }
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
        let retry_later = self.failed_at.is_some_and(|failed| failed.elapsed() < RETRY);
        if self.under_way.is_some() || retry_later || self.suffice(next, BLOCK / 2) {
            return;
        }
        if let Some((dir, domain)) = &self.disk {
            let record = Record { domain: *domain, reserved: next_ceiling(self.ceiling) };
            let dir = Arc::clone(dir);
            let task = spawn_blocking(move || dir.write(&record).map(|()| record.reserved));
            self.under_way = Some(Reservation { started: Instant::now(), task });
        }
    }

    /// Until when the reservation that is under way is worth waiting for; `None`: it is not.
    pub(crate) fn worth_waiting(&self) -> Option<Instant> {
        let reservation = self.under_way.as_ref().filter(|_| self.failed_at.is_none())?;
        let until = reservation.started + PATIENCE;
        (Instant::now() < until).then_some(until)
    }

    /// Whether [`Tokens::more`] has something to say at once.
    pub(crate) fn settled(&self) -> bool {
        self.under_way.as_ref().is_some_and(|reservation| reservation.task.is_finished())
    }

    /// Waits for the reservation that is under way, for ever if there is none.
    /// Returns the ceiling, which is the old one if it failed. Nothing is lost if it is dropped.
    pub(crate) async fn more(&mut self) -> u64 {
        let Some(reservation) = &mut self.under_way else { return pending().await };
        match (&mut reservation.task).await {
            Ok(Ok(ceiling)) => {
                self.ceiling = ceiling;
                if self.failed_at.take().is_some() {
                    info!("tokens can be reserved again");
                }
            }
            // The process is ending, and with it what was on its way to the disk.
            Err(_) => self.failed_at = Some(Instant::now()),
            Ok(Err(error)) => {
                if self.failed_at.replace(Instant::now()).is_none() {
                    error!(%error, "no more tokens can be reserved: when those that are have been given out, acquires are refused until the file can be written again");
                }
            }
        }
        self.under_way = None;
        self.ceiling
    }
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
    async fn a_disk_that_cannot_be_written_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Single::durable(folder.path()).unwrap();
        let first = run.tokens.ceiling();
        let obstacle = folder.path().join("tokens.new");
        std::fs::create_dir(&obstacle).unwrap();
        run.tokens.reserve_ahead(first);
        assert!(run.tokens.worth_waiting().is_some());
        assert_eq!(run.tokens.more().await, first);
        run.tokens.reserve_ahead(first);
        assert!(run.tokens.under_way.is_none(), "not at once");
        std::fs::remove_dir(&obstacle).unwrap();
        tokio::time::sleep(RETRY).await;
        run.tokens.reserve_ahead(first);
        assert!(run.tokens.worth_waiting().is_none(), "it may fail again");
        assert_eq!(run.tokens.more().await, first + BLOCK);
        assert!(run.tokens.failed_at.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_is_not_waited_for_for_ever() {
        let task = tokio::spawn(pending());
        let mut tokens = Tokens::unlimited();
        tokens.under_way = Some(Reservation { started: Instant::now(), task });
        let until = tokens.worth_waiting().unwrap();
        tokio::time::sleep_until(until).await;
        assert_eq!(tokens.worth_waiting(), None);
    }

    #[test]
    fn the_last_token_of_all_is_no_reason_to_wait() {
        let tokens = Tokens::unlimited();
        assert!(tokens.suffice(u64::MAX, u64::MAX));
    }
}
