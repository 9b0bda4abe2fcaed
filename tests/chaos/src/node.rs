//! A server process that comes and goes.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::Duration;

use ticketing_test_support::{Server, ServerBuilder, Signal};

use crate::Place;

/// How long a node may take to answer its admin page.
const PATIENCE: Duration = Duration::from_secs(2);

/// A place for a server process: it can be killed, paused, and started again with the
/// same settings.
#[derive(Debug)]
pub struct Node {
    place: Place,
    builder: ServerBuilder,
    server: Option<Server>,
}

impl Node {
    /// A node whose process is started like this, in this place. It does not run yet.
    #[must_use]
    pub fn new(place: Place, listen: SocketAddr, builder: ServerBuilder) -> Self {
        let builder = builder.listen(listen).admin();
        let builder = match place.netns() {
            Some(netns) => builder.netns(netns),
            None => builder,
        };
        Self { place, builder, server: None }
    }

    /// Starts a process, and waits until it listens. Whatever an earlier one had only in
    /// memory is gone.
    ///
    /// # Panics
    /// If it does not come up, or one runs already.
    pub fn start(&mut self) {
        assert!(self.server.is_none(), "it runs already");
        self.server = Some(self.builder.start());
    }

    /// Starts a process that may end at once.
    ///
    /// # Errors
    /// Its exit status and its log, if it ends before it listens.
    ///
    /// # Panics
    /// If one runs already, or it neither listens nor ends.
    pub fn try_start(&mut self) -> Result<(), (ExitStatus, String)> {
        assert!(self.server.is_none(), "it runs already");
        self.server = Some(self.builder.try_start()?);
        Ok(())
    }

    /// Kills the process, at whatever it is.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Kills the process and starts another one.
    ///
    /// # Panics
    /// If that does not come up.
    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Tells the process to end in order, and waits until it has.
    ///
    /// # Panics
    /// If it does not.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.signal(Signal::TERM);
            let status = server.wait_exit();
            assert!(status.success(), "it ended with {status}:\n{}", server.log());
        }
    }

    /// Stops the process in its tracks.
    pub fn pause(&self) {
        self.server().signal(Signal::STOP);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        self.server().signal(Signal::CONT);
    }

    /// Whether a process runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::is_running)
    }

    /// The running process.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub const fn server(&self) -> &Server {
        self.server.as_ref().expect("a running server")
    }

    /// Fetches an admin page from the node's own host, so that no cut is in the way; HTTP
    /// status and body. `None`: no process runs, or it does not answer.
    #[must_use]
    pub fn admin(&self, path: &str) -> Option<(u16, String)> {
        let server = self.server.as_ref()?;
        self.place.within(|| server.try_admin_get(path, PATIENCE)).ok()
    }
}
