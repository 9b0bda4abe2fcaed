//! The process group of the command.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, test_kill_process_group, waitid,
    waitpgid,
};

use crate::exit;

const POLL: Duration = Duration::from_millis(10);

/// What is about to end anyway (a `tee` that writes the last lines) is not disturbed.
const LINGER: Duration = Duration::from_millis(500);

/// After SIGKILL only a process in the middle of a system call lives on.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// A group whose first process was started by this one.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Pid,
}

impl Group {
    /// Starts the command as the first process of a new group.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        // So that orphans of the group come to this process, which buries them, and
        // not to the first process of a container, which may not.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let child = command.process_group(0).spawn()?;
        Ok(Self { leader: Pid::from_child(&child) })
    }

    /// The number of the group, which is that of its first process.
    pub(crate) const fn id(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Fails where there is none left, or none that this user may signal.
        let _ = kill_process_group(self.leader, signal);
    }

    /// How the first process ended, as an exit code; `None`: it runs.
    ///
    /// It is only looked at and stays a zombie, so that the number of the group
    /// cannot name another one.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn ended(&self) -> io::Result<Option<u8>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(status) = waitid(WaitId::Pid(self.leader), options)? else { return Ok(None) };
        let code = status.exit_status().map(|code| u8::try_from(code).unwrap_or(u8::MAX));
        Ok(code.or_else(|| status.terminating_signal().map(exit::of_signal)))
    }

    /// The signal that has stopped the first process since this was asked last.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn stopped(&self) -> io::Result<Option<Signal>> {
        match waitid(WaitId::Pid(self.leader), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
            Ok(status) => {
                Ok(status.and_then(|status| status.stopping_signal()).and_then(Signal::from_named_raw))
            }
            // It has ended meanwhile.
            Err(Errno::CHILD) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// When the first process has ended: ends what is left of the group, if it does
    /// not end by itself. Whether nothing of it lives any more.
    pub(crate) async fn end_rest(&self, impatient: impl Fn() -> bool) -> bool {
        let ended = Instant::now();
        while !self.is_gone() {
            if ended.elapsed() > LINGER || impatient() {
                return self.end(impatient).await;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Ends all that is left of the group: SIGTERM, and SIGKILL when `impatient` says so.
    /// Whether nothing of it lives any more.
    pub(crate) async fn end(&self, impatient: impl Fn() -> bool) -> bool {
        self.signal(Signal::TERM);
        // A stopped process acts on it only when it goes on.
        self.signal(Signal::CONT);
        while !self.is_gone() {
            if impatient() {
                return self.kill().await;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Kills all that is left of the group. Whether nothing of it lives any more.
    pub(crate) async fn kill(&self) -> bool {
        self.signal(Signal::KILL);
        let killed = Instant::now();
        while !self.is_gone() {
            if killed.elapsed() > KILLED_WITHIN {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    fn is_gone(&self) -> bool {
        // Zombies count as members.
        while let Ok(Some(_)) = waitpgid(self.leader, WaitOptions::NOHANG) {}
        test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }
}
