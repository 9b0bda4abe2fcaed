//! A server as a whole: what there is, and how it starts and stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ticketing_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::admin::{self, Admin};
use crate::clock::Clock;
use crate::config::{Config, TokenSource};
use crate::conn::Message;
use crate::counters::Counters;
use crate::driver::{Driver, Published};
use crate::farewell::LINGER;
use crate::hub::{Credentials, CredentialsError, Hub, Phase};
use crate::listener;
use crate::single::{DataDirError, Single};

/// Clients that were on their way when the server began to drain still get their answer.
const LEAST_DRAIN: Duration = Duration::from_millis(500);

/// How long holders may go on releasing. With [`LINGER`] it stays below 5 seconds.
const LONGEST_DRAIN: Duration = Duration::from_millis(2500);

/// A running server. It runs on the runtime that it was started on, until
/// [`Server::shutdown`] or the end of that runtime.
#[derive(Debug)]
pub struct Server {
    client_addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    hub: Arc<Hub>,
    published: Published,
    driver: JoinHandle<()>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificate or client tokens.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// An address that cannot be listened on.
    #[error("--{setting} {address}: cannot listen there: {source}")]
    Listen {
        /// The setting with the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

impl Server {
    /// Starts a server on the runtime that this is called on.
    ///
    /// # Errors
    /// [`StartError`] says what stands in the way.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let credentials = Credentials::load(&config)?;
        let single = match &config.data_dir {
            Some(folder) => Single::durable(folder)?,
            None => Single::in_memory(),
        };
        let (clients, client_addr) = bind("listen", config.listen)?;
        let admin = config.admin.map(|address| bind("admin", address)).transpose()?;
        let admin_addr = admin.as_ref().map(|(_, address)| *address);

        // A connection has at most one batch, its end and its lost grants under way at a time.
        let messages = (config.limits.connections as usize).saturating_mul(3).saturating_add(1);
        let (sender, inbox) = mpsc::channel(messages.min(tokio::sync::Semaphore::MAX_PERMITS));
        let grace = config.restart_grace;
        let hub = Arc::new(Hub {
            clock: Clock::SYSTEM,
            limits: config.limits,
            counters: Arc::new(Counters::default()),
            driver: sender,
            phase: watch::Sender::new(if grace.is_zero() { Phase::Serving } else { Phase::Grace }),
            domain: single.domain,
            advertise: config.advertise.clone(),
            credentials,
            last_conn: AtomicU64::new(0),
            last_refusal: AtomicU64::new(0),
        });
        let published = Published::default();
        let driver = driver(single, &hub, inbox, published.clone())?;
        tell_start(&config, &hub);
        let driver = tokio::spawn(driver.run());
        tokio::spawn(listener::run(clients, Arc::clone(&hub)));
        if let Some((listener, _)) = admin {
            let admin = Admin::new(Arc::clone(&hub), published.clone());
            tokio::spawn(admin::serve(listener, admin));
        }
        if !grace.is_zero() {
            tokio::spawn(end_grace(Arc::clone(&hub), grace));
        }
        let tls = config.tls.is_some();
        match admin_addr {
            Some(admin) => info!(client = %client_addr, %admin, tls, "listening"),
            None => info!(client = %client_addr, tls, "listening"),
        }
        Ok(Self { client_addr, admin_addr, hub, published, driver })
    }

    /// Where clients are served.
    #[must_use]
    pub const fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// Where the admin pages are served.
    #[must_use]
    pub const fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Reads client tokens and certificate again. If one of them is bad, all stay as they are.
    ///
    /// # Errors
    /// [`CredentialsError`] names the file.
    pub fn reload(&self) -> Result<(), CredentialsError> {
        self.hub.credentials.reload()
    }

    /// Completes if the server stops by itself, which only a defect makes it do.
    pub async fn failed(&mut self) {
        if let Err(error) = (&mut self.driver).await {
            error!(%error, "the task that owns the locks ended");
        }
    }

    /// Refuses new acquires, serves releases until no lock is held or the time
    /// for it is over, then ends every connection. Takes less than 5 seconds,
    /// and less when `hurry` completes.
    pub async fn shutdown(self, hurry: impl Future<Output = ()>) {
        let hub = &self.hub;
        hub.phase.send_replace(Phase::Draining);
        let _ = hub.driver.send(Message::Drain).await;
        let start = Instant::now();
        let drained = async {
            while hub.counters.connections.get() > 0
                && (self.published.read().engine.held > 0 || start.elapsed() < LEAST_DRAIN)
                && start.elapsed() < LONGEST_DRAIN
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = drained => {}
            () = hurry => {}
        }
        hub.phase.send_replace(Phase::Ending);
        let start = Instant::now();
        while hub.counters.connections.get() > 0 && start.elapsed() < LINGER {
            sleep(Duration::from_millis(5)).await;
        }
        info!("stopped");
    }
}

fn bind(setting: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let wrong = |source| StartError::Listen { setting, address, source };
    let listener = listener::bind(address).map_err(wrong)?;
    let bound = listener.local_addr().map_err(wrong)?;
    Ok((listener, bound))
}

fn driver(
    single: Single,
    hub: &Hub,
    inbox: mpsc::Receiver<Message>,
    published: Published,
) -> Result<Driver, StartError> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(StartError::Random)?;
    let seed = u128::from_ne_bytes(seed);
    let engine = Engine::new(ticketing_engine::Config {
        limits: hub.limits.engine,
        #[allow(clippy::cast_possible_truncation)] // Both halves of it.
        hash_seed: [seed as u64, (seed >> 64) as u64],
        next_token: single.first_token,
        token_ceiling: single.tokens.ceiling(),
    });
    Ok(Driver {
        engine,
        timers_per_tick: hub.limits.engine.timers_per_tick,
        clock: hub.clock,
        tokens: single.tokens,
        inbox,
        counters: Arc::clone(&hub.counters),
        published,
    })
}

fn tell_start(config: &Config, hub: &Hub) {
    info!(version = env!("CARGO_PKG_VERSION"), domain = %hub.domain, "starting");
    match &config.data_dir {
        None => warn!(
            "a restart forgets who holds what, and fencing tokens then go on from the wall clock: \
             --data-dir makes them independent of it, --restart-grace lets old leases run out first"
        ),
        Some(folder) => warn!(
            data_dir = %folder.display(),
            "a restart forgets who holds what; fencing tokens go on growing: --restart-grace lets old leases run out first"
        ),
    }
    if matches!(config.client_token, TokenSource::None) && !config.listen.ip().is_loopback() {
        warn!(listen = %config.listen, "other machines are served without a client token");
    }
}

async fn end_grace(hub: Arc<Hub>, grace: Duration) {
    info!(seconds = grace.as_secs(), "clients are told to wait until old leases have run out");
    sleep(grace).await;
    let ended = hub.phase.send_if_modified(|phase| {
        let ends = *phase == Phase::Grace;
        if ends {
            *phase = Phase::Serving;
        }
        ends
    });
    if ended {
        info!("old leases have run out: serving");
    }
}
