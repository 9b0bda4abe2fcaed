//! Runs the command for as long as its lease allows.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use ticketing::Ticket;
use tokio::signal::unix::{SignalKind, signal};

use crate::group::Group;
use crate::guard::Guard;
use crate::output;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Timers stand still while the machine sleeps, and the lease does not: look again this often.
const LOOK: Duration = Duration::from_millis(250);

/// SIGKILL comes this long before the end of the lease, or a fifth of the grace if that is more.
const LEAST_MARGIN: Duration = Duration::from_millis(50);

/// When a command is ended, as time left of the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grace {
    term: Duration,
    kill: Duration,
}

impl Grace {
    /// SIGTERM when `grace` is left.
    pub(crate) fn new(grace: Duration) -> Self {
        let kill = (grace / 5).max(LEAST_MARGIN);
        Self { term: grace.max(kill), kill }
    }

    /// With less left than this a command would be ended as soon as it is started.
    pub(crate) const fn least_lease(self) -> Duration {
        self.term
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this exit code.
    Exited(u8),
    /// Its lease was about to end, so it was ended.
    Lost {
        /// Whether all of its processes are known to be gone.
        gone: bool,
    },
}

/// Runs the command. Afterwards no process of its group lives any more.
///
/// # Errors
/// If it cannot be started, or its guard is gone.
pub(crate) async fn run(
    command: Command,
    ticket: &Ticket,
    grace: Grace,
    signals: &mut Signals,
    guard: &mut Guard,
) -> io::Result<Ending> {
    let mut child_changed = signal(SignalKind::child())?;
    let mut terminal = Terminal::open();
    let group = Group::spawn(command)?;
    if let Err(error) = guard.watch(group.id(), ticket.remaining()) {
        group.kill().await;
        return Err(error);
    }
    if let Some(terminal) = &mut terminal
        && terminal.is_for_the_command()
    {
        terminal.lend(group.id());
    }

    let exited = loop {
        if let Some(code) = group.ended()? {
            break Some(code);
        }
        let left = ticket.remaining();
        if left <= grace.term {
            break None;
        }
        if let Some(signal) = group.stopped()? {
            command_stopped(signal, &group, terminal.as_mut());
        }
        tokio::select! {
            _ = child_changed.recv() => {}
            signal = signals.next() => pass_on(signal, &group, terminal.as_mut(), || ticket.remaining() > grace.term),
            () = tokio::time::sleep((left - grace.term).min(LOOK)) => {}
        }
    };

    let ending = match exited {
        Some(code) => {
            let ended = Instant::now();
            group.end(|| ended.elapsed() >= grace.term || ticket.remaining() <= grace.kill).await;
            Ending::Exited(code)
        }
        None => {
            output::note(&format!("the lease of {:?} is about to end; ending the command", ticket.key()));
            Ending::Lost { gone: group.end(|| ticket.remaining() <= grace.kill).await }
        }
    };
    if let Some(terminal) = &mut terminal {
        terminal.take_back();
        if !matches!(ending, Ending::Exited(code) if code < 128) {
            terminal.restore_modes();
        }
    }
    Ok(ending)
}

/// A signal to this process, meant for what it runs.
fn pass_on(signal: Signal, group: &Group, terminal: Option<&mut Terminal>, may_go_on: impl FnOnce() -> bool) {
    if signal == Signal::CONT {
        // While everything was stopped the lease went on.
        if may_go_on() {
            if let Some(terminal) = terminal {
                terminal.lend_again(group.id());
            }
            group.signal(signal);
        }
        return;
    }
    group.signal(signal);
    if signal == Signal::TSTP && terminal.is_some_and(|terminal| terminal.has_job_control()) {
        // The shell continues this process, and that continues the command.
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// The command was stopped, but not by way of this process.
fn command_stopped(signal: Signal, group: &Group, terminal: Option<&mut Terminal>) {
    // Without a terminal, whoever stopped it continues it; the lease still ends.
    let Some(terminal) = terminal else { return };
    let reached_for_terminal = [Signal::TTIN, Signal::TTOU].contains(&signal);
    if reached_for_terminal && terminal.lend(group.id()) {
        group.signal(Signal::CONT);
    } else if terminal.has_job_control() && (reached_for_terminal || terminal.is_lent()) {
        // Ctrl-Z in the command, or a command in the background that needs the
        // terminal: the job stops as a whole, this process by its own handler.
        terminal.take_back();
        let _ = kill_current_process_group(Signal::TSTP);
    } else if terminal.is_lent() {
        // Nobody could continue it.
        group.signal(Signal::CONT);
    }
}
