//! What every measurement of a run works with: how much to do, where its
//! servers come from, and who is told how far it is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use ticketing_test_support::{Server, binary};

use crate::cores::Cores;
use crate::plan::Plan;
use crate::process::{self, Helper};

/// The surroundings of a run, until it is dropped.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    /// The product's command line.
    pub(crate) ticketing: PathBuf,
    cores: Cores,
    /// Shown on a terminal only.
    bar: ProgressBar,
    /// Keep the cores from halting.
    _spinners: Vec<Helper>,
}

impl Stage {
    /// Takes the clients' half of the cores for this process.
    pub(crate) fn set(plan: Plan, steps: u32, keep_awake: bool) -> Result<Self> {
        // Built, if they have to be, while all cores can be used.
        let _ = binary("ticketing-server", "ticketing-server");
        let ticketing = binary("ticketing-cli", "ticketing");
        let cores = Cores::divide()?;
        let spinners = if keep_awake { process::keep_awake(&cores)? } else { Vec::new() };
        cores.become_client()?;
        let bar = ProgressBar::new(u64::from(steps));
        bar.set_style(ProgressStyle::with_template("[{elapsed}] {bar:30} {pos}/{len} {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(200));
        Ok(Self { plan, ticketing, cores, bar, _spinners: spinners })
    }

    /// The next step begins.
    pub(crate) fn step(&self, what: &'static str) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }

    /// A lock server with its defaults, on the servers' half of the cores.
    pub(crate) fn server(&self) -> Result<Server> {
        let server = Server::start(&[]);
        self.cores.give_to_server(server.pid())?;
        Ok(server)
    }

    /// Lets a server run on every core.
    pub(crate) fn share_cores(&self, server: &Server) -> Result<()> {
        self.cores.share(server.pid())
    }

    /// An echo server there, and where it listens.
    pub(crate) fn floor_server(&self) -> Result<(Helper, SocketAddr)> {
        let (helper, address) = process::floor_server()?;
        self.cores.give_to_server(helper.pid())?;
        Ok((helper, address))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
