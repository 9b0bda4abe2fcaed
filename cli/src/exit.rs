//! The exit codes of `ticketing` itself: one table for the code, the help and the manual.
//!
//! They keep clear of what commands commonly return: small numbers, `sysexits`
//! other than the two used here in their own meaning, 100 and 101 (package
//! managers, a panic), 124 to 127 (`timeout`, shells), 128 and above (signals).

use ticketing::ErrorKind;

/// Why `ticketing` did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Usage = 64,
    System = 71,
    Violation = 80,
    Timeout = 102,
    Busy = 103,
    NotConnected = 104,
    Indeterminate = 105,
    Lost = 106,
    InsufficientLease = 107,
    NotHeld = 108,
    ReleaseUnconfirmed = 109,
    Auth = 110,
    Tls = 111,
    WrongDomain = 112,
    Unavailable = 113,
    NotExecutable = 126,
    NotFound = 127,
}

impl Exit {
    pub(crate) const ALL: [Self; 17] = [
        Self::Usage,
        Self::System,
        Self::Violation,
        Self::Timeout,
        Self::Busy,
        Self::NotConnected,
        Self::Indeterminate,
        Self::Lost,
        Self::InsufficientLease,
        Self::NotHeld,
        Self::ReleaseUnconfirmed,
        Self::Auth,
        Self::Tls,
        Self::WrongDomain,
        Self::Unavailable,
        Self::NotExecutable,
        Self::NotFound,
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// The name in JSON output and in the manual.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::System => "system",
            Self::Violation => "violation",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::NotConnected => "not_connected",
            Self::Indeterminate => "indeterminate",
            Self::Lost => "lost",
            Self::InsufficientLease => "insufficient_lease",
            Self::NotHeld => "not_held",
            Self::ReleaseUnconfirmed => "release_unconfirmed",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::WrongDomain => "wrong_domain",
            Self::Unavailable => "unavailable",
            Self::NotExecutable => "not_executable",
            Self::NotFound => "not_found",
        }
    }

    /// What it tells the caller.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "the command line, or a value in it, is not valid; nothing was sent",
            Self::System => "this machine refused something: a file, a pipe, a process",
            Self::Violation => "bench: two tasks were inside one lock at once",
            Self::Timeout => "the wait ran out; the lock was not acquired",
            Self::Busy => "the server refused the request: a limit is reached, or it does not lead",
            Self::NotConnected => "no server could be reached within the wait; nothing was sent",
            Self::Indeterminate => "the answer was lost: the lock may be held by nobody until its lease ends",
            Self::Lost => "the lease was about to end before the command, which was ended",
            Self::InsufficientLease => "the lock came too late: too little of its lease was left",
            Self::NotHeld => "at the release the lock was no longer held under this token",
            Self::ReleaseUnconfirmed => "no answer to the release; the lock is free once its lease ends",
            Self::Auth => "the server refused the client token",
            Self::Tls => "the TLS connection could not be made, or the server's certificate not verified",
            Self::WrongDomain => "the server belongs to another fencing domain than expected",
            Self::Unavailable => {
                "the client itself refused: too many requests, or the server lacks a feature"
            }
            Self::NotExecutable => "the command was found but could not be executed",
            Self::NotFound => "the command was not found",
        }
    }

    /// What to do about it, for the error message; empty where the error says it already.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Timeout => "wait longer (--wait), or try again later",
            Self::Busy => "try again in a moment",
            Self::NotConnected => "check --server and that a server runs there",
            Self::Indeterminate => "nothing was run; try again once the lease asked for is over",
            Self::InsufficientLease => "ask for a longer lease (--lease)",
            Self::NotHeld => "its lease may have ended; check what the lock protects",
            Self::Auth => "check --token-file or TICKETING_CLIENT_TOKEN",
            Self::Tls => "check --tls, --tls-ca and the name in --server",
            Self::Usage
            | Self::System
            | Self::Violation
            | Self::Lost
            | Self::ReleaseUnconfirmed
            | Self::WrongDomain
            | Self::Unavailable
            | Self::NotExecutable
            | Self::NotFound => "",
        }
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::NotConnected => Self::NotConnected,
            ErrorKind::Indeterminate => Self::Indeterminate,
            ErrorKind::InsufficientLease => Self::InsufficientLease,
            ErrorKind::NotHeld => Self::NotHeld,
            ErrorKind::ReleaseUnconfirmed => Self::ReleaseUnconfirmed,
            ErrorKind::Auth => Self::Auth,
            ErrorKind::Tls => Self::Tls,
            ErrorKind::WrongDomain => Self::WrongDomain,
            ErrorKind::InvalidInput => Self::Usage,
            ErrorKind::ClientCapacity | ErrorKind::Closed | ErrorKind::Unsupported => Self::Unavailable,
        }
    }
}

/// The exit code that stands for the end by a signal, as shells have it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or(127).min(127)
}

/// The table, as the help shows it.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:\n    0  success; for lock: that of the command\n");
    for exit in Exit::ALL {
        text += &format!("  {:3}  {}: {}\n", exit.code(), exit.name(), exit.meaning());
    }
    text + "128+n  ended by signal n: the command, or ticketing while it waited"
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_outcomes_share_a_code_or_a_name() {
        let codes: HashSet<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        let names: HashSet<&str> = Exit::ALL.iter().map(|exit| exit.name()).collect();
        assert_eq!((codes.len(), names.len()), (Exit::ALL.len(), Exit::ALL.len()));
    }

    #[test]
    fn outcomes_have_the_names_that_every_language_shares() {
        for kind in ErrorKind::ALL {
            let exit = Exit::from(kind);
            let is_grouped = [Exit::Usage, Exit::Unavailable].contains(&exit);
            assert!(is_grouped || exit.name() == kind.as_str(), "{kind}");
        }
    }

    #[test]
    fn signals_follow_the_shells() {
        assert_eq!((of_signal(2), of_signal(9), of_signal(64)), (130, 137, 192));
    }
}
