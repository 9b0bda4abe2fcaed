//! A server as a whole: what there is, and how it starts and stops.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ticketing_cluster::{Alone, Cluster, Init, InitError, Timing, wall_clock_token};
use ticketing_engine::{Decider, Engine, Office};
use ticketing_protocol::handshake::Domain;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use crate::admin::{self, Admin};
use crate::clock::Clock;
use crate::commit::{Commit, Proposals};
use crate::config::{Config, Membership, PeerConfigError, TokenSource};
use crate::conn::Message;
use crate::counters::Counters;
use crate::driver::{Driver, Published};
use crate::hub::{Credentials, CredentialsError, Hub, Phase};
use crate::listener;
use crate::view::{Lead, View};

/// Clients that were on their way when the server began to drain still get their answer.
const LEAST_DRAIN: Duration = Duration::from_millis(500);

/// How long a server alone may take to find out who holds what.
const LONGEST_RECOVERY: Duration = Duration::from_secs(60);

/// How long a leader tries to hand its office over before it drains.
const LONGEST_HAND_OVER: Duration = Duration::from_secs(1);

/// How long holders may go on releasing, the hand-over included. A lease can be far longer
/// than anybody waits for a server to stop.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);

/// How long connections may take to hear that this is the end.
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);

/// How long the log may take to come to rest; it could end at any moment. All in all a
/// busy machine has more than a second left of the five that are promised.
const LONGEST_CLOSE: Duration = Duration::from_millis(500);

/// A running server. It runs on the runtime that it was started on, until
/// [`Server::shutdown`] or the end of that runtime.
#[derive(Debug)]
pub struct Server {
    client_addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    hub: Arc<Hub>,
    published: Published,
    driver: JoinHandle<()>,
    listener: JoinHandle<()>,
    admin: Option<JoinHandle<()>>,
    reload: Arc<Notify>,
    /// The log that it commits through, if it has one.
    cluster: Option<Cluster>,
    has_peers: bool,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificate or client tokens.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// What is kept on disk.
    #[error(transparent)]
    Cluster(#[from] ticketing_cluster::StartError),
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
    /// The log is there and cannot be gone on with.
    #[error(
        "--data-dir: the log could be read, but not gone on with within a minute; see the log lines above"
    )]
    NoRecovery,
    /// The secret or the certificates of the peers.
    #[error(transparent)]
    Peer(#[from] PeerConfigError),
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
        let credentials = Credentials::load(&config).await?;
        let engine = ticketing_engine::Config {
            limits: config.limits.engine,
            hash_seed: hash_seed()?,
            ..ticketing_engine::Config::default()
        };
        let mode = match (&config.cluster, &config.data_dir) {
            (Some(membership), _) => Mode::member(membership, &config, engine).await?,
            (None, Some(folder)) => Mode::durable(folder, &config, engine).await?,
            (None, None) => Mode::in_memory(engine),
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
            view: watch::Sender::new(mode.view.clone()),
            advertise: config.advertise.clone(),
            credentials,
            last_conn: AtomicU64::new(0),
            last_refusals: Default::default(),
        });
        let published = Published::default();
        tell_start(&config, mode.view.domain);
        let cluster = mode.cluster();
        let has_peers = config.cluster.is_some();
        let driver = Driver {
            decider: mode.decider,
            engine,
            commit: mode.commit,
            clock: hub.clock,
            inbox,
            published: published.clone(),
            view: hub.view.clone(),
            last_office: None,
        };
        let driver = tokio::spawn(driver.run());
        if cluster.is_some() && !has_peers {
            // It has only itself to wait for: nobody is turned away meanwhile.
            let mut views = hub.view.subscribe();
            let serving = views.wait_for(|view| view.lead == Lead::Here);
            if timeout(LONGEST_RECOVERY, serving).await.is_err() {
                return Err(StartError::NoRecovery);
            }
        }
        let listener = tokio::spawn(listener::run(clients, Arc::clone(&hub)));
        let admin = admin.map(|(socket, _)| {
            let admin = Admin {
                hub: Arc::clone(&hub),
                published: published.clone(),
                cluster: cluster.clone(),
                has_peers,
                listener: listener.abort_handle(),
                started: Instant::now(),
            };
            tokio::spawn(admin::serve(socket, admin))
        });
        let reload = Arc::new(Notify::new());
        tokio::spawn(reload_on_request(Arc::clone(&hub), Arc::clone(&reload)));
        if !grace.is_zero() {
            tokio::spawn(end_grace(Arc::clone(&hub), grace));
        }
        let tls = config.tls.is_some();
        match admin_addr {
            Some(admin) => info!(client = %client_addr, %admin, tls, "listening"),
            None => info!(client = %client_addr, tls, "listening"),
        }
        if let Some(membership) = config.cluster.filter(|membership| membership.init) {
            tokio::spawn(initialise(membership));
        }
        Ok(Self {
            client_addr,
            admin_addr,
            hub,
            published,
            driver,
            listener,
            admin,
            reload,
            cluster,
            has_peers,
        })
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

    /// Has client tokens and certificate read again, beside what is served. The log
    /// tells what came of it; if one of them is bad, all stay as they are.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Completes if the server stops by itself, or can be reached no more: by a
    /// defect, or because another process has taken its place in the cluster.
    pub async fn failed(&mut self) {
        let superseded = async {
            match &self.cluster {
                Some(cluster) => cluster.ended().await,
                None => std::future::pending().await,
            }
        };
        let admin = async {
            match &mut self.admin {
                Some(admin) => admin.await,
                None => std::future::pending().await,
            }
        };
        let (what, ended) = tokio::select! {
            ended = &mut self.driver => ("the task that owns the locks", ended),
            ended = &mut self.listener => ("the task that accepts connections", ended),
            ended = admin => ("the task that serves the admin pages", ended),
            () = superseded => return,
        };
        match ended {
            Ok(()) => error!("{what} ended"),
            Err(error) => error!(%error, "{what} ended"),
        }
    }

    /// Refuses new acquires, serves releases until no lock is held or the time
    /// for it is over, then ends every connection. Takes about 3.5 seconds at most,
    /// and less when `hurry` completes.
    pub async fn shutdown(self, hurry: impl Future<Output = ()>) {
        let (hub, start) = (&self.hub, Instant::now());
        hub.phase.send_replace(Phase::Draining);
        if let Some(cluster) = self.cluster.as_ref().filter(|_| self.has_peers) {
            cluster.hand_over(LONGEST_HAND_OVER).await;
        }
        let _ = hub.driver.send(Message::Drain).await;
        let draining = Instant::now();
        let drained = async {
            while hub.counters.connections.get() > 0
                && (self.published.read().engine.held > 0 || draining.elapsed() < LEAST_DRAIN)
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
        while hub.counters.connections.get() > 0 && start.elapsed() < LONGEST_FAREWELL {
            sleep(Duration::from_millis(5)).await;
        }
        if let Some(cluster) = &self.cluster {
            // Whatever it has told is on disk.
            let _ = timeout(LONGEST_CLOSE, cluster.shutdown()).await;
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

/// What a server decides with, and through what it commits.
struct Mode {
    decider: Decider,
    commit: Commit,
    view: View,
}

impl Mode {
    /// Without a data directory: successive runs share one domain, and their tokens
    /// grow with the wall clock.
    fn in_memory(engine: ticketing_engine::Config) -> Self {
        let config = ticketing_engine::Config { next_token: wall_clock_token(), ..engine };
        let mut decider = Decider::new(config);
        decider.take_office(0, Office { term: 0, run: 0 }, Engine::new(config));
        let view = View { domain: Some(Domain::default()), lead: Lead::Here };
        Self { decider, commit: Commit::Memory, view }
    }

    /// Alone, with everything on disk before it is told.
    async fn durable(
        folder: &Path,
        config: &Config,
        engine: ticketing_engine::Config,
    ) -> Result<Self, StartError> {
        let alone = Alone {
            data_dir: folder.to_owned(),
            client: config.advertise.clone().unwrap_or_else(|| config.listen.to_string()),
            clock: || Clock::SYSTEM.now(),
            hash_seed: engine.hash_seed,
        };
        Ok(Self::of(Cluster::alone(alone).await?, engine))
    }

    /// One of several.
    async fn member(
        membership: &Membership,
        config: &Config,
        engine: ticketing_engine::Config,
    ) -> Result<Self, StartError> {
        let (listener, bound) = bind("peer-listen", membership.listen)?;
        info!(peer = %bound, "listening for peers");
        let config = ticketing_cluster::Config {
            slots: membership.slots.clone(),
            slot: membership.slot,
            peer: membership.peer.load().await?,
            timing: Timing::default(),
            clock: || Clock::SYSTEM.now(),
            hash_seed: engine.hash_seed,
            data_dir: config.data_dir.clone(),
            state_dir: membership.state_dir.clone(),
            log_memory: membership.log_memory,
        };
        Ok(Self::of(Cluster::start(config, listener).await?, engine))
    }

    fn of(cluster: Cluster, engine: ticketing_engine::Config) -> Self {
        let view = View { domain: None, lead: Lead::Unknown };
        Self { decider: Decider::new(engine), commit: Commit::Log(Proposals::new(cluster)), view }
    }

    fn cluster(&self) -> Option<Cluster> {
        match &self.commit {
            Commit::Memory => None,
            Commit::Log(proposals) => Some(proposals.cluster.clone()),
        }
    }
}

fn hash_seed() -> Result<[u64; 2], StartError> {
    let mut seed = [0; 16];
    getrandom::fill(&mut seed).map_err(StartError::Random)?;
    let seed = u128::from_ne_bytes(seed);
    #[allow(clippy::cast_possible_truncation)] // Both halves of it.
    Ok([seed as u64, (seed >> 64) as u64])
}

/// Initialises the cluster as soon as a process waits in every place, unless that
/// was done before.
async fn initialise(membership: Membership) {
    let peer = match membership.peer.load().await {
        Ok(peer) => peer,
        Err(error) => return error!(%error, "the cluster is not initialised"),
    };
    let init = Init {
        slots: membership.slots,
        peer,
        token_floor: membership.token_floor,
        new_identity: false,
        wait: Duration::from_secs(3600),
    };
    match init.run().await {
        Ok(identity) => info!(%identity, "initialised the cluster"),
        Err(InitError::Exists { identity, .. }) => {
            info!(%identity, "nothing to initialise: there is a cluster");
        }
        Err(error) => warn!(%error, "the cluster is not initialised"),
    }
}

async fn reload_on_request(hub: Arc<Hub>, requested: Arc<Notify>) {
    loop {
        requested.notified().await;
        match hub.credentials.reload().await {
            Ok(()) => info!("reloaded the client token and the certificate"),
            Err(error) => error!(%error, "reload failed, the old client token and certificate stay"),
        }
    }
}

fn tell_start(config: &Config, domain: Option<Domain>) {
    let version = env!("CARGO_PKG_VERSION");
    match domain {
        Some(domain) => info!(version, %domain, "starting"),
        None => info!(version, "starting"),
    }
    match &config.data_dir {
        None if config.cluster.is_some() => {}
        None => warn!(
            "a restart forgets who holds what, and fencing tokens then go on from the wall clock: \
             --data-dir keeps both, --restart-grace lets old leases run out first"
        ),
        Some(folder) => {
            info!(data_dir = %folder.display(), "every grant and release is on disk before it is told");
        }
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

#[cfg(test)]
mod tests;
