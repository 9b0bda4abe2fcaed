//! One connection: how it is opened, and the task that owns its socket.

mod connect;
mod driver;
mod handshake;
mod reply;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::Domain;
use crate::session::Request;

pub(crate) use connect::{Config, Stream, connect};
pub(crate) use driver::{Driver, Socket};
pub(crate) use reply::{Answer, Caller, Claim, Unanswered};

/// What a server said of itself in its greeting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeted {
    pub(crate) domain: Option<Domain>,
    pub(crate) node: Option<u64>,
    /// Its own address, as hints about the leader name it.
    pub(crate) own_address: Option<Box<str>>,
    pub(crate) extension: bool,
}

/// The way to an open session.
#[derive(Debug)]
pub(crate) struct Link {
    /// Which of the broker's connections it is.
    pub(crate) connection: usize,
    pub(crate) address: Arc<str>,
    pub(crate) greeted: Greeted,
    commands: mpsc::UnboundedSender<Command>,
}

/// What the task that owns the socket is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send this, and tell the caller how it ends.
    Submit(Request, Caller),
    /// The caller of that acquire has gone.
    GiveUp { owner: u64, key: Arc<str> },
    /// The broker closes: end what waits.
    WindDown,
    /// End the session.
    Stop,
}

impl Link {
    pub(crate) fn new(
        connection: usize,
        address: Arc<str>,
        greeted: Greeted,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, queue) = mpsc::unbounded_channel();
        (Arc::new(Self { connection, address, greeted, commands }), queue)
    }

    /// Hands a command to the task.
    ///
    /// The queue needs no bound of its own: a request brings the permit that
    /// bounds how many there are, and is followed by at most one `GiveUp`.
    ///
    /// # Errors
    /// The command comes back if the session is over.
    pub(crate) fn send(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|refused| refused.0)
    }
}
