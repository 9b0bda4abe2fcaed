//! What the server is told to do: read, checked once, and from then on trusted.
//!
//! [`Options`] is the settings as they are written, [`Config`] what they mean
//! together. Nothing behind a [`Config`] checks again.

mod command;
mod membership;
mod options;
mod page;

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

pub use command::{Founding, Operation};
pub use membership::{Membership, PeerConfigError, PeerFiles, PeerSecret};
pub use options::{Invocation, LogFormat, LogLevel, Options, command, invocation};
pub use page::settings_page;

use ticketing_cluster::{MAX_ADDRESS_BYTES, is_address};

use crate::auth::{BadToken, ClientTokens};

/// The one setting that has no flag, so that no process list shows it.
pub const CLIENT_TOKEN_VARIABLE: &str = "TICKETING_CLIENT_TOKEN";

/// The secret of the peers, which has no flag either.
pub const PEER_SECRET_VARIABLE: &str = "TICKETING_PEER_SECRET";

/// The secrets that stand in the environment.
#[derive(Clone, Default)]
pub struct Secrets {
    /// [`CLIENT_TOKEN_VARIABLE`].
    pub client_token: Option<Vec<u8>>,
    /// [`PEER_SECRET_VARIABLE`].
    pub peer_secret: Option<Vec<u8>>,
}

impl Secrets {
    /// Reads the environment.
    #[must_use]
    pub fn read() -> Self {
        let read = |name| std::env::var_os(name).map(std::ffi::OsString::into_encoded_bytes);
        Self { client_token: read(CLIENT_TOKEN_VARIABLE), peer_secret: read(PEER_SECRET_VARIABLE) }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

/// More could not even be started on many machines.
const MAX_THREADS: u16 = 1024;

/// What the server is told to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients are served.
    pub listen: SocketAddr,
    /// The server's own address as clients know it; `None`: where they came in.
    pub advertise: Option<String>,
    /// What clients must know.
    pub client_token: TokenSource,
    /// With which certificate; `None`: plain TCP.
    pub tls: Option<TlsFiles>,
    /// Where everything is kept; `None`: nowhere.
    pub data_dir: Option<PathBuf>,
    /// The cluster that it takes part in; `None`: it serves alone.
    pub cluster: Option<Membership>,
    /// How long after the start nothing is granted.
    pub restart_grace: Duration,
    /// Where the admin pages are served; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// The least important lines that are logged.
    pub log_level: LogLevel,
    /// Threads that serve connections.
    pub threads: NonZeroU16,
    /// How much it takes on.
    pub limits: Limits,
}

/// Where the client token comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// None is needed.
    None,
    /// A file, read again on request.
    File(PathBuf),
    /// The environment.
    Environment(ClientTokens),
}

/// The files of a server certificate.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// How much the server takes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at one time.
    pub connections: u32,
    /// Connections at one time that have not authenticated yet.
    pub unauthenticated: u32,
    /// Bytes of answers that a connection may leave unread.
    pub unread_output: usize,
    /// Those that the engine keeps.
    pub engine: ticketing_engine::Limits,
}

/// A setting that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file of settings.
    #[error("{}: {problem}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No token, and other machines could come in.
    #[error(
        "{0} can be reached from other machines, and no client token is set: give --client-token-file or \
         {CLIENT_TOKEN_VARIABLE}, or listen on a loopback address (or, to let anybody take and release every \
         lock, --insecure-no-auth)"
    )]
    OpenToAll(SocketAddr),
    /// Two settings that exclude each other.
    #[error("{0} and {1} exclude each other: give one of them")]
    Both(&'static str, &'static str),
    /// One of two settings that belong together.
    #[error("{0} needs {1}")]
    Needs(&'static str, &'static str),
    /// The token in the environment.
    #[error("{CLIENT_TOKEN_VARIABLE}: {0}")]
    Token(BadToken),
    /// The admin pages would be open to other machines.
    #[error(
        "--admin {0} can be reached from other machines, and its pages need no token: use a loopback address, \
         or allow it with --admin-allow-remote"
    )]
    OpenAdmin(SocketAddr),
    /// The advertised address.
    #[error(
        "--advertise {0:?} is no address that clients could be told: it must be HOST:PORT of at most \
         {MAX_ADDRESS_BYTES} bytes, with a name, an IPv4 address, or an IPv6 address in brackets"
    )]
    Advertise(String),
    /// The list of all nodes.
    #[error("--cluster: {0}")]
    Slots(#[from] ticketing_cluster::BadSlots),
    /// A name that is not in the list.
    #[error("--slot {0:?} is none of the nodes of --cluster")]
    Slot(String),
    /// A setting that means nothing in a cluster.
    #[error("{0} has no meaning in a cluster: {1}")]
    NotInCluster(&'static str, &'static str),
    /// A client address that only the system can resolve.
    #[error("--cluster: {0} is no IP address that could be listened on: say with --listen where to listen")]
    ClientListen(String),
    /// A peer address that only the system can resolve.
    #[error(
        "--cluster: {0} is no IP address that could be listened on: say with --peer-listen where to listen"
    )]
    PeerListen(String),
    /// The peer secret.
    #[error("{PEER_SECRET_VARIABLE}: {0}")]
    PeerSecret(ticketing_peer::SecretTooShort),
    /// A limit that leaves nothing.
    #[error("--{0} must be at least 1")]
    Zero(&'static str),
    /// More threads than any machine has a use for.
    #[error("--threads {0}: at most {MAX_THREADS} make sense, one for each processor")]
    Threads(u16),
}

impl Config {
    /// What these settings mean together, with the defaults where nothing is
    /// given.
    ///
    /// # Errors
    /// [`ConfigError`] says which setting is wrong and what to do about it.
    pub fn new(options: Options, secrets: Secrets) -> Result<Self, ConfigError> {
        let mut options = options;
        let cluster = Membership::new(&mut options, secrets.peer_secret)?;
        let options = options.or(Options::defaults());
        let token = secrets.client_token;
        // The defaults give every setting for which this fallback could be asked.
        let defaults = ticketing_engine::Limits::default();
        let at_least_one =
            |name, value: Option<u32>| value.filter(|&value| value > 0).ok_or(ConfigError::Zero(name));
        let limits = Limits {
            connections: at_least_one("max-connections", options.max_connections)?,
            unauthenticated: at_least_one("max-unauthenticated", options.max_unauthenticated)?,
            unread_output: at_least_one("max-unread-output", options.max_unread_output)? as usize,
            engine: ticketing_engine::Limits {
                in_flight_per_connection: at_least_one("max-in-flight", options.max_in_flight)?,
                waiters_per_key: at_least_one("max-waiters-per-key", options.max_waiters_per_key)?,
                waiters: at_least_one("max-waiters", options.max_waiters)?,
                held: at_least_one("max-held", options.max_held)?,
                tombstones: at_least_one("max-tombstones", options.max_tombstones)?,
                ..defaults
            },
        };
        let listen = options.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = Self {
            listen,
            // Every node names it by the address that stands in the list of all nodes.
            advertise: match cluster.as_ref().and_then(Membership::client_address) {
                Some(address) => Some(address),
                None => options.advertise.map(advertised).transpose()?,
            },
            client_token: match (options.client_token_file, token) {
                (Some(_), Some(_)) => {
                    return Err(ConfigError::Both("--client-token-file", CLIENT_TOKEN_VARIABLE));
                }
                (Some(path), None) => TokenSource::File(path),
                (None, Some(token)) => {
                    TokenSource::Environment(ClientTokens::single(token).map_err(ConfigError::Token)?)
                }
                (None, None) => TokenSource::None,
            },
            tls: match (options.tls_cert, options.tls_key) {
                (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
                (Some(_), None) => return Err(ConfigError::Needs("--tls-cert", "--tls-key")),
                (None, Some(_)) => return Err(ConfigError::Needs("--tls-key", "--tls-cert")),
                (None, None) => None,
            },
            data_dir: options.data_dir,
            cluster,
            restart_grace: Duration::from_secs(options.restart_grace.unwrap_or_default().into()),
            admin: options.admin,
            log_format: options.log_format.unwrap_or(LogFormat::Text),
            log_level: options.log_level.unwrap_or(LogLevel::Info),
            threads: match options.threads.and_then(NonZeroU16::new) {
                None => return Err(ConfigError::Zero("threads")),
                Some(threads) if threads.get() > MAX_THREADS => {
                    return Err(ConfigError::Threads(threads.get()));
                }
                Some(threads) => threads,
            },
            limits,
        };
        let no_auth = options.insecure_no_auth == Some(true);
        match config.client_token {
            TokenSource::None if !no_auth && !listen.ip().is_loopback() => {
                Err(ConfigError::OpenToAll(listen))
            }
            TokenSource::File(_) if no_auth => {
                Err(ConfigError::Both("--client-token-file", "--insecure-no-auth"))
            }
            TokenSource::Environment(_) if no_auth => {
                Err(ConfigError::Both(CLIENT_TOKEN_VARIABLE, "--insecure-no-auth"))
            }
            TokenSource::None | TokenSource::File(_) | TokenSource::Environment(_) => Ok(()),
        }?;
        match config.admin {
            Some(admin) if !admin.ip().is_loopback() && options.admin_allow_remote != Some(true) => {
                Err(ConfigError::OpenAdmin(admin))
            }
            _ => Ok(config),
        }
    }
}

fn advertised(address: String) -> Result<String, ConfigError> {
    if is_address(&address) { Ok(address) } else { Err(ConfigError::Advertise(address)) }
}

#[cfg(test)]
mod tests;
