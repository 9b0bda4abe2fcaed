//! The signals that `ticketing` takes in order to pass them on.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

const TAKEN: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// A stream of signals that were sent to this process.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on these signals no longer have their default effect.
    ///
    /// One that is ignored already (`nohup`, a shell's background job) stays
    /// ignored: taking it would also undo that for the command.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(crate) fn take() -> io::Result<Self> {
        let ignored = ignored();
        let taken = TAKEN.into_iter().filter(|taken| ignored & bit(*taken) == 0);
        taken
            .map(|taken| Ok((taken, signal(SignalKind::from_raw(taken.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            self.0
                .iter_mut()
                .find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal))
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Whether a signal asks a program to end, by default.
pub(crate) fn ends_a_program(signal: Signal) -> bool {
    ![Signal::WINCH, Signal::TSTP, Signal::CONT].contains(&signal)
}

const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The set of ignored signals, as the system shows it; where it does not, none.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
