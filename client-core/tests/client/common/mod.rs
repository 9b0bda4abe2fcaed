//! Servers for the tests of the client: one that is scripted frame by frame,
//! and one that really keeps locks and counts them.

#![allow(dead_code)]

pub(crate) mod lock_server;
pub(crate) mod scripted;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// For anything that should happen at once: the machines that run tests are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `condition` holds; `what` says what was waited for.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let location = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < PATIENCE, "{location}: not within {PATIENCE:?}: {what}");
            tokio::time::sleep(millis(5)).await;
        }
    }
}

/// One poll, of which no wake-up will tell.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future that must end soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}
