//! Keeps one connection up, for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::directory::Phase;
use super::shared::Shared;
use crate::address::Address;
use crate::link::{Command, Driver, Greeted, Link, Socket, Stream, connect};
use crate::trouble::{At, Stage, Trouble};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_millis(3200);

/// A session that ends sooner does not prove the server healthy.
const HEALTHY: Duration = Duration::from_secs(1);

/// An attempt that takes longer needs an explanation.
const QUICK: Duration = Duration::from_millis(500);

/// For the polite end of a stream, when everything that matters is over.
const GOODBYE: Duration = Duration::from_millis(100);

/// The pause before the next attempt.
#[derive(Debug)]
struct Backoff(Duration);

impl Backoff {
    const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// Doubles each time. Up to a quarter longer by chance, so that the clients
    /// of a server that comes back do not all arrive at once; never shorter.
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LAST_PAUSE);
        pause.mul_f64(rand::random_range(1.0..1.25))
    }
}

/// Opens sessions to one address, one after the other, until the broker stops.
pub(super) async fn supervise(shared: Arc<Shared>, connection: usize, address: Address) {
    let mut backoff = Backoff::new();
    let mut failures = 0_u32;
    loop {
        let attempt = tokio::select! {
            biased;
            () = shared.reached(Phase::Stopping) => return,
            attempt = open(&shared, connection, &address) => attempt,
        };
        let began = Instant::now();
        let ended = match attempt {
            Err(what) => Err(what),
            Ok((stream, greeted, first)) => {
                let (link, queue) = Link::new(connection, Arc::clone(&address.text), greeted);
                match stream {
                    Stream::Plain(socket) => serve(socket, &first, link, queue, &shared).await,
                    Stream::Tls(socket) => serve(*socket, &first, link, queue, &shared).await,
                }
            }
        };
        match ended {
            Ok(None) => return,
            Ok(Some(why)) => {
                if began.elapsed() >= HEALTHY {
                    backoff = Backoff::new();
                    failures = 0;
                }
                report(&why, failures);
            }
            Err(what) => {
                let why = Arc::new(At { address: Arc::clone(&address.text), what });
                shared.directory.failed(connection, &why);
                report(&why, failures);
            }
        }
        failures = failures.saturating_add(1);
        tokio::select! {
            biased;
            () = shared.reached(Phase::Stopping) => return,
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}

/// One attempt. Whoever gives up before it ends is told what it waits for.
async fn open(
    shared: &Shared,
    connection: usize,
    address: &Address,
) -> Result<(Stream, Greeted, Vec<u8>), Trouble> {
    let (stage, reached) = watch::channel(Stage::Connection);
    let mut attempt = std::pin::pin!(connect(&shared.config, address, &stage));
    if let Ok(outcome) = timeout(QUICK, &mut attempt).await {
        return outcome;
    }
    let what = Trouble::NotYet(*reached.borrow());
    shared.directory.slow(connection, &Arc::new(At { address: Arc::clone(&address.text), what }));
    attempt.await
}

/// One session, from the end of its handshake. `None`: the broker has stopped.
async fn serve<S: Socket>(
    socket: S,
    first: &[u8],
    link: Arc<Link>,
    queue: mpsc::UnboundedReceiver<Command>,
    shared: &Arc<Shared>,
) -> Result<Option<Arc<At<Trouble>>>, Trouble> {
    let opened = Driver::open(socket, first, Arc::clone(&link), queue, Arc::clone(shared))?;
    let Some(mut driver) = opened else { return Ok(None) };
    tracing::debug!(address = %link.address, greeting = ?link.greeted, "session open");
    let why = (&mut driver).await;
    // The polite end of the stream, when everything that matters is over.
    let _ = timeout(GOODBYE, driver.shut_down()).await;
    Ok(if matches!(why.what, Trouble::Stopped) { None } else { Some(why) })
}

/// The first failure of a row is worth a line; the rest would only repeat it.
fn report(why: &At<Trouble>, failures: u32) {
    let reason = crate::error::chain(&why.what);
    if failures == 0 {
        tracing::warn!(address = %why.address, reason, "no session; trying again in the background");
    } else {
        tracing::debug!(address = %why.address, reason, failures, "still no session");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_last_one_and_are_never_short() {
        let mut backoff = Backoff::new();
        for nominal in [100, 200, 400, 800, 1600, 3200, 3200, 3200] {
            let nominal = Duration::from_millis(nominal);
            let pause = backoff.next();
            assert!(pause >= nominal && pause <= nominal * 5 / 4, "{pause:?} for {nominal:?}");
        }
    }

    #[test]
    fn pauses_differ_between_clients() {
        let mut pauses = (0..20).map(|_| Backoff::new().next()).collect::<Vec<_>>();
        pauses.dedup();
        assert!(pauses.len() > 10, "{pauses:?}");
    }
}
