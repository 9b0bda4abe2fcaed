//! Runs the command for as long as its lease allows.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use ticketing::Ticket;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::exit::{self, Exit};
use crate::failure::Failure;
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

    /// The guard acts only if nobody did before, and still within the lease.
    fn until_guard_acts(self, left: Duration) -> Duration {
        left.saturating_sub(self.kill / 2)
    }

    /// With less left than this a command would be ended as soon as it is started.
    pub(crate) const fn least_lease(self) -> Duration {
        self.term
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this exit code, and nothing of its group lives any more.
    Exited(u8),
    /// Its lease was about to end, so it was ended, and nothing of its group lives any more.
    Lost,
    /// Some process of its group could not be ended.
    Alive,
}

/// Runs the command.
///
/// # Errors
/// If it cannot be started or watched; nothing of its group lives then.
pub(crate) async fn run(
    command: Command,
    ticket: &Ticket,
    grace: Grace,
    signals: &mut Signals,
    guard: &mut Guard,
) -> Result<Ending, Failure> {
    let child_changed = signal(SignalKind::child()).map_err(not_watched)?;
    let terminal = Terminal::open();
    let group = Group::spawn(command).map_err(|error| not_started(&error))?;
    let guarded = guard.watch(group.id(), grace.until_guard_acts(ticket.remaining()));
    let terminal = terminal.filter(|terminal| terminal.stay_awake().is_ok());
    let mut watch = Watch { group, terminal, ticket, grace, signals, child_changed };
    let over = match guarded {
        Ok(()) => watch.until_over().await,
        Err(error) => Err(error),
    };
    watch.end(over).await
}

/// A command that runs, and what may happen to it.
#[derive(Debug)]
struct Watch<'a> {
    group: Group,
    terminal: Option<Terminal>,
    ticket: &'a Ticket,
    grace: Grace,
    signals: &'a mut Signals,
    child_changed: unix::Signal,
}

impl Watch<'_> {
    /// Returns when the command has ended, with its exit code; or when its time is over.
    async fn until_over(&mut self) -> io::Result<Option<u8>> {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_for_the_command()
        {
            terminal.lend(self.group.id());
        }
        loop {
            if let Some(code) = self.group.ended()? {
                return Ok(Some(code).filter(|code| !self.was_killed_in_time(*code)));
            }
            let left = self.ticket.remaining().saturating_sub(self.grace.term);
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(signal) = self.group.stopped()? {
                self.command_stopped(signal);
            }
            tokio::select! {
                _ = self.child_changed.recv() => {}
                signal = self.signals.next() => self.pass_on(signal),
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
        }
    }

    /// Whether the guard ended the command: when this process was stopped, and what is
    /// left of the lease when it goes on is less than the guard lets pass.
    fn was_killed_in_time(&self, code: u8) -> bool {
        let left = self.ticket.remaining();
        code == exit::of_signal(Signal::KILL.as_raw()) && self.grace.until_guard_acts(left).is_zero()
    }

    /// A signal to this process, meant for what it runs.
    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::CONT {
            // While everything was stopped the lease went on.
            if self.ticket.remaining() <= self.grace.term {
                return;
            }
            if let Some(terminal) = &mut self.terminal {
                terminal.lend_again(self.group.id());
            }
        }
        self.group.signal(signal);
        if signal == Signal::TSTP
            && let Some(terminal) = &mut self.terminal
            && terminal.has_job_control()
        {
            terminal.take_back();
            // The shell continues this process, and that continues the command.
            let _ = kill_process(getpid(), Signal::STOP);
            // That the command has stopped is no news any more.
            let _ = self.group.stopped();
        }
    }

    /// The command was stopped, but not by way of this process.
    fn command_stopped(&mut self, signal: Signal) {
        // Without a terminal, whoever stopped it continues it; the lease still ends.
        let Some(terminal) = &mut self.terminal else { return };
        let reached_for_terminal = [Signal::TTIN, Signal::TTOU].contains(&signal);
        if reached_for_terminal && terminal.lend(self.group.id()) {
            self.group.signal(Signal::CONT);
        } else if terminal.has_job_control() && (reached_for_terminal || terminal.is_lent()) {
            // Ctrl-Z in the command, or a command in the background that needs the
            // terminal: the job stops as a whole, this process by its own handler.
            terminal.take_back();
            let _ = kill_current_process_group(Signal::TSTP);
        } else if terminal.is_lent() {
            // Nobody could continue it.
            self.group.signal(Signal::CONT);
        }
    }

    /// Ends what is left of the group, so that the lock can be released.
    async fn end(mut self, over: io::Result<Option<u8>>) -> Result<Ending, Failure> {
        let time_is_over = || self.ticket.remaining() <= self.grace.kill;
        let gone = match over {
            Ok(Some(_)) => {
                let ended = Instant::now();
                self.group.end_rest(|| ended.elapsed() >= self.grace.term || time_is_over()).await
            }
            Ok(None) => {
                output::note(&format!(
                    "the lease of {:?} is about to end; ending the command",
                    self.ticket.key()
                ));
                self.group.end(time_is_over).await
            }
            Err(_) => self.group.kill().await,
        };
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            // What ends by itself leaves the modes as it wants them.
            if !matches!(over, Ok(Some(code)) if code < 128) {
                terminal.restore_modes();
            }
        }
        match over {
            _ if !gone => Ok(Ending::Alive),
            Ok(Some(code)) => Ok(Ending::Exited(code)),
            Ok(None) => Ok(Ending::Lost),
            Err(error) => Err(not_watched(error)),
        }
    }
}

fn not_started(error: &io::Error) -> Failure {
    let exit = match Errno::from_io_error(error) {
        // It vanished meanwhile, or what its first line names does not exist.
        Some(Errno::NOENT) => Exit::NotFound,
        Some(Errno::ACCESS | Errno::NOEXEC) => Exit::NotExecutable,
        _ => Exit::System,
    };
    let hint = if Errno::from_io_error(error) == Some(Errno::NOEXEC) {
        "; a script must begin with a line such as #!/bin/sh"
    } else {
        ""
    };
    Failure::new(exit, format!("the command could not be started: {error}{hint}"))
}

fn not_watched(error: io::Error) -> Failure {
    Failure::system("the command could not be watched, so it does not run", error)
}
