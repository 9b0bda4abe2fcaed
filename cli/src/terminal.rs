//! The terminal from which `ticketing` was started, and who is in its foreground.
//!
//! The command runs in a group of its own, so that it can be ended as a whole.
//! A group in the background that reads the terminal is stopped by the system,
//! so an interactive command has to be put into the foreground. When that
//! happens, Ctrl-C and Ctrl-Z reach the command alone and no longer a script or
//! a pipeline around `ticketing`. So the terminal is lent at once only where
//! there is nobody around; otherwise when the command reaches for it.

use std::fs::File;
use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, Signal as MaskedSignal};
use rustix::process::{Pid, getpgid, getpgrp, getpid, getsid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    modes: Option<Termios>,
    /// The group to which this process belongs.
    job: Pid,
    lent: bool,
    /// Whether the command is to have it whenever this job is in the foreground.
    wanted: bool,
}

impl Terminal {
    /// `None`: there is no terminal.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, modes, job: getpgrp(), lent: false, wanted: false })
    }

    /// From now on this process is not stopped for what it does to the terminal from
    /// the background: it has a lease to watch. Called once the command runs, which
    /// would inherit it.
    pub(crate) fn stay_awake(&self) -> io::Result<()> {
        let mut mask = SigSet::empty();
        mask.add(MaskedSignal::SIGTTOU);
        Ok(mask.thread_block()?)
    }

    /// Whether the command should have the terminal from the start: an
    /// interactive shell started `ticketing` alone, neither in a script nor in a pipeline.
    pub(crate) fn is_for_the_command(&self) -> bool {
        self.job == getpid()
            && io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && io::stderr().is_terminal()
    }

    /// Puts a group into the foreground, if this job is there; whether it is there now.
    pub(crate) fn lend(&mut self, group: Pid) -> bool {
        self.wanted = true;
        let foreground = tcgetpgrp(&self.tty).ok();
        if foreground == Some(self.job) {
            self.lent = tcsetpgrp(&self.tty, group).is_ok();
            return self.lent;
        }
        foreground == Some(group)
    }

    /// After the job was stopped and goes on: the command gets what it had.
    pub(crate) fn lend_again(&mut self, group: Pid) {
        if self.wanted {
            self.lend(group);
        }
    }

    pub(crate) const fn is_lent(&self) -> bool {
        self.lent
    }

    /// Puts this job back into the foreground, if its command was there.
    pub(crate) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            // Fails only where the terminal is gone.
            let _ = tcsetpgrp(&self.tty, self.job);
        }
    }

    /// Sets the modes as they were at the start, after a command that had no chance to do it.
    pub(crate) fn restore_modes(&self) {
        if let Some(modes) = &self.modes
            && tcgetpgrp(&self.tty) == Ok(self.job)
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes);
        }
    }

    /// Whether a shell outside of this job will continue what was stopped.
    pub(crate) fn has_job_control(&self) -> bool {
        getsid(None)
            .and_then(|leader| getpgid(Some(leader)))
            .is_ok_and(|group_of_leader| group_of_leader != self.job)
    }
}
