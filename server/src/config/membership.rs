//! The settings of a node of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use ticketing_cluster::Slots;
use ticketing_peer::{
    Limits, PeerTls, PeerTlsError, PeerTlsFiles, SECRET_BYTES, Secret, SecretTooShort, read_file,
};

use super::{ConfigError, Options, PEER_SECRET_VARIABLE};
use crate::files::{Unread, beside};

/// A node's place in a cluster, and how it talks to the others.
#[derive(Clone, Debug)]
pub struct Membership {
    /// All places.
    pub slots: Slots,
    /// The index of this node's place.
    pub slot: u8,
    /// Where peers are answered.
    pub listen: SocketAddr,
    /// Secret and certificates.
    pub peer: PeerFiles,
    /// Where a node that forgets keeps a note of the clusters that it was in.
    pub state_dir: Option<PathBuf>,
    /// Bytes of the log that it keeps after a snapshot.
    pub log_memory: usize,
    /// Whether it initialises the cluster when a process waits in every place.
    pub init: bool,
    /// Tokens of a cluster that it initialises begin above this one.
    pub token_floor: u64,
}

/// Where secret and certificates of the peers come from.
#[derive(Clone, Debug)]
pub struct PeerFiles {
    /// The secret.
    pub secret: PeerSecret,
    /// The certificates; `None`: plain TCP.
    pub tls: Option<PeerTlsFiles>,
}

/// Where the secret of the peers comes from.
#[derive(Clone, Debug)]
pub enum PeerSecret {
    /// A file.
    File(PathBuf),
    /// The environment.
    Environment(Secret),
}

/// Why a node cannot talk to its peers.
#[derive(Debug, thiserror::Error)]
pub enum PeerConfigError {
    /// The file with the secret.
    #[error("--peer-secret-file {}: {problem}", path.display())]
    Secret {
        /// Its name.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate.
    #[error(transparent)]
    Tls(#[from] PeerTlsError),
    /// Nothing came of reading.
    #[error("the secret or the certificates of the peers: {0}")]
    Unread(#[from] Unread),
}

impl Membership {
    /// The place in a cluster, if one is set. Gives the client address of the list
    /// to listen on where no other is given.
    pub(super) fn new(options: &mut Options, secret: Option<Vec<u8>>) -> Result<Option<Self>, ConfigError> {
        let Some(slots) = &options.cluster else { return Ok(None) };
        let slots = slots.parse::<Slots>()?;
        let name = options.slot.as_deref().ok_or(ConfigError::Needs("--cluster", "--slot"))?;
        let slot = slots.index_of(name).ok_or_else(|| ConfigError::Slot(name.to_owned()))?;
        let place = slots.get(slot).ok_or_else(|| ConfigError::Slot(name.to_owned()))?;
        if options.advertise.is_some() {
            let instead = "clients are told the client address that stands in --cluster";
            return Err(ConfigError::NotInCluster("--advertise", instead));
        }
        if options.restart_grace.is_some_and(|seconds| seconds > 0) {
            let instead = "the other nodes remember who holds what";
            return Err(ConfigError::NotInCluster("--restart-grace", instead));
        }
        let listen = match options.peer_listen {
            Some(listen) => listen,
            None => place.peer.parse().map_err(|_| ConfigError::PeerListen(place.peer.clone()))?,
        };
        if options.listen.is_none() {
            let wrong = |_| ConfigError::ClientListen(place.client.clone());
            options.listen = Some(place.client.parse().map_err(wrong)?);
        }
        let peer = PeerFiles::new(options, secret)?;
        Ok(Some(Self {
            listen,
            peer,
            slot,
            state_dir: options.state_dir.take(),
            log_memory: options.log_memory.unwrap_or(ticketing_cluster::LOG_MEMORY),
            init: options.init == Some(true),
            token_floor: options.token_floor.unwrap_or(0),
            slots,
        }))
    }

    /// Where clients reach this node.
    pub(super) fn client_address(&self) -> Option<String> {
        Some(self.slots.get(self.slot)?.client.clone())
    }
}

impl PeerFiles {
    /// From the settings and the environment.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no secret, or more than one.
    pub fn new(options: &Options, secret: Option<Vec<u8>>) -> Result<Self, ConfigError> {
        let secret = match (&options.peer_secret_file, secret) {
            (Some(_), Some(_)) => {
                return Err(ConfigError::Both("--peer-secret-file", PEER_SECRET_VARIABLE));
            }
            (Some(path), None) => PeerSecret::File(path.clone()),
            (None, Some(secret)) => {
                PeerSecret::Environment(Secret::new(&secret).map_err(ConfigError::PeerSecret)?)
            }
            (None, None) => {
                return Err(ConfigError::Needs("--cluster", "--peer-secret-file (or TICKETING_PEER_SECRET)"));
            }
        };
        let tls = match (&options.peer_tls_cert, &options.peer_tls_key, &options.peer_tls_ca) {
            (Some(cert), Some(key), ca) => {
                Some(PeerTlsFiles { cert: cert.clone(), key: key.clone(), ca: ca.clone() })
            }
            (Some(_), None, _) => return Err(ConfigError::Needs("--peer-tls-cert", "--peer-tls-key")),
            (None, Some(_), _) => return Err(ConfigError::Needs("--peer-tls-key", "--peer-tls-cert")),
            (None, None, Some(_)) => return Err(ConfigError::Needs("--peer-tls-ca", "--peer-tls-cert")),
            (None, None, None) => None,
        };
        Ok(Self { secret, tls })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`PeerConfigError`] names the file.
    pub async fn load(&self) -> Result<ticketing_peer::Config, PeerConfigError> {
        let files = self.clone();
        beside(move || files.read()).await?
    }

    fn read(&self) -> Result<ticketing_peer::Config, PeerConfigError> {
        let secret = match &self.secret {
            PeerSecret::Environment(secret) => secret.clone(),
            PeerSecret::File(path) => {
                let wrong = |problem: String| PeerConfigError::Secret { path: path.clone(), problem };
                let bytes = read_file(path, SECRET_BYTES).map_err(|error| wrong(error.to_string()))?;
                Secret::new(bytes.trim_ascii_end())
                    .map_err(|short: SecretTooShort| wrong(short.to_string()))?
            }
        };
        let tls = self.tls.clone().map(PeerTls::load).transpose()?;
        Ok(ticketing_peer::Config { secret, tls, limits: Limits::default() })
    }
}
