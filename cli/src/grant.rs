//! Waiting for a lock at the command line: signals end the wait, and on a
//! terminal the place in the queue is shown.

use std::convert::Infallible;
use std::future;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish};
use rustix::process::{Signal, getpid, kill_process};
use ticketing::{AcquireOptions, Placement, Ticket, TicketBroker};

use crate::failure::Failure;
use crate::signals::{self, Signals};

/// A shorter wait is not worth a word.
const SHOW_AFTER: Duration = Duration::from_millis(500);
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Acquires the lock. A signal that asks to end takes the request back.
///
/// # Errors
/// Whatever is not a definite grant.
pub(crate) async fn wait_for(
    broker: &TicketBroker,
    key: &str,
    options: AcquireOptions,
    signals: &mut Signals,
) -> Result<Ticket, Failure> {
    let acquire = broker.acquire_with(key, options);
    let waiting = show_place(acquire.placement(), key);
    // Dropping the acquire at a signal is what takes it back.
    tokio::select! {
        biased;
        result = acquire => Ok(result?),
        signal = asked_to_end(signals) => {
            Err(Failure::interrupted(signal.as_raw(), &format!("the wait for {key:?}")))
        }
        never = waiting => match never {},
    }
}

/// Closes the broker, which may still have to take something back. A signal cuts it short.
pub(crate) async fn close(broker: &TicketBroker, signals: &mut Signals) {
    tokio::select! {
        () = broker.close() => {}
        _ = asked_to_end(signals) => {}
    }
}

async fn asked_to_end(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if signals::ends_a_program(signal) {
            return signal;
        }
        if signal == Signal::TSTP {
            // What Ctrl-Z would have done if the signal had not been taken.
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }
}

async fn show_place(placement: Placement, key: &str) -> Infallible {
    if !io::stderr().is_terminal() {
        return future::pending().await;
    }
    tokio::time::sleep(SHOW_AFTER).await;
    let line = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    line.enable_steady_tick(Duration::from_millis(120));
    loop {
        line.set_message(match placement.place().await {
            Ok(place) if place.place > 0 => {
                format!("waiting for {key:?}: {} of {} in the queue", place.place, place.waiters)
            }
            // Not queued yet, or a server that cannot tell.
            Ok(_) | Err(_) => format!("waiting for {key:?}"),
        });
        tokio::time::sleep(SHOW_EVERY).await;
    }
}
