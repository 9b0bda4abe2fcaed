//! What belongs to the process and not to the server: signals, limits.

use std::io;

use tracing::warn;

/// Descriptors beside those of connections: listeners, files, the runtime's own.
#[cfg(unix)]
const OTHER_FILES: u64 = 64;

/// Takes as many open files as the connections need, where the system allows it.
#[cfg(unix)]
pub(crate) fn raise_open_files(connections: u32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let wanted = u64::from(connections) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < wanted) else {
        return;
    };
    let reachable = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), ..limit });
    let open_files = if raised.is_ok() { reachable } else { current };
    if open_files < wanted {
        warn!(
            open_files,
            wanted,
            "the limit of open files (ulimit -n) is below --max-connections: fewer connections than that can be open"
        );
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_open_files(_connections: u32) {}

/// What the server writes (keys, owners, tokens) is nobody else's to read.
#[cfg(unix)]
pub(crate) fn keep_files_private() {
    use rustix::fs::Mode;

    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

#[cfg(not(unix))]
pub(crate) fn keep_files_private() {}

/// What the process is told by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM, SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that the process listens for.
#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    /// A file as large as the process may make it: without a listener that is death without
    /// a word, with one the write fails, and the log says so.
    _file_size: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals(());

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self(()))
    }

    pub(crate) async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Stop,
            Err(_) => std::future::pending().await,
        }
    }
}
