//! The only place that writes to the standard streams.
//!
//! Where a command did something to a lock, a reader that went away (a closed
//! pipe) is no reason to fail: what was done stands, and the exit code tells it.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for people.
    Human,
    /// One JSON object a line for programs.
    Json,
}

impl Format {
    /// People sit at terminals; whatever else reads the standard output is a program.
    pub(crate) fn choose(json: bool, human: bool) -> Self {
        if json || !(human || io::stdout().is_terminal()) { Self::Json } else { Self::Human }
    }
}

/// Writes a result to the standard output.
pub(crate) fn line(text: &str) {
    let _ = try_line(text);
}

/// Writes a result that somebody must read.
///
/// # Errors
/// If nobody can.
pub(crate) fn try_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Writes what a command is all about.
///
/// # Errors
/// If it cannot be written; but a reader may leave early.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    match try_line(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::system("the result could not be printed", error)),
    }
}

/// Writes a message to the standard error, under the name of the program.
pub(crate) fn note(message: &str) {
    aside(&format!("ticketing: {message}"));
}

/// Writes a line to the standard error.
pub(crate) fn aside(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
