//! The fail-safe: a second process that kills the command's group when the
//! first one cannot.
//!
//! `ticketing lock` ends its command in time, unless it is killed itself, or
//! stopped. Then the command would run on without its lock. So a guard holds the
//! other end of a pipe: when that closes before it is dismissed, or when the
//! lease ends, it kills the group. It has a group of its own, away from the
//! terminal's signals. (`PR_SET_PDEATHSIG` would reach the first process of the
//! group only, none that changed its user, and says nothing when the parent is
//! stopped.)

use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// What makes a process of this program a guard.
pub(crate) const ARGUMENT: &str = "__guard";

/// Time-outs stand still while the machine sleeps, and the lease does not: look again this often.
const LOOK: Duration = Duration::from_millis(250);

/// A running guard.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(crate) fn start() -> io::Result<Self> {
        Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            // Nothing in it is of use to it, and some of it is secret.
            .env_clear()
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }

    /// Makes it kill a group when `left` is over, unless it is dismissed before.
    ///
    /// # Errors
    /// If it is gone.
    pub(crate) fn watch(&mut self, group: Pid, left: Duration) -> io::Result<()> {
        let end = now() + left;
        let pipe = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(pipe, "{} {}", group.as_raw_pid(), end.as_millis())
    }

    /// Ends it: there is nothing to watch any more.
    pub(crate) fn dismiss(mut self) {
        // Its pipe must not close while it lives.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the guard does.
pub(crate) fn run() {
    let mut stdin = io::stdin().lock();
    let mut line = String::new();
    // Without an order there is nothing to kill: the command was not started.
    let _ = stdin.read_line(&mut line);
    if let Some((group, end)) = read_order(&line) {
        while let Some(left) = end.checked_sub(now()).filter(|left| !left.is_zero()) {
            let timeout = Timespec::try_from(left.min(LOOK)).unwrap_or_default();
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn read_order(line: &str) -> Option<(Pid, Duration)> {
    let (group, end_ms) = line.trim_end().split_once(' ')?;
    // To kill "the group 1" means to kill everything.
    let group = Pid::from_raw(group.parse().ok()?).filter(|group| *group != Pid::INIT)?;
    Some((group, Duration::from_millis(end_ms.parse().ok()?)))
}

/// A clock that goes on while the machine sleeps, as leases do.
fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
