//! TLS between nodes: certificates, and who verifies whom.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::files::{FileError, read_certificates};
use crate::pair::{CertifiedPair, PairError};

/// The files that a node's TLS is made of, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// The node's certificate and those between it and the CA.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA of all nodes. With it TLS is mutual.
    pub ca: Option<PathBuf>,
}

/// TLS of a node, as a listener and as a dialler. Clones share one state.
///
/// - With a CA, both ends show a certificate of that CA and verify the other's;
///   the certificate of a node must be good for servers and for clients. Take a
///   CA of the cluster's own.
/// - Without one, the dialler verifies the listener's certificate against the
///   CAs that the system trusts, and the listener knows the dialler by the
///   secret alone.
///
/// Either way the dialler asks for a certificate for the host that it dials, as
/// it stands in the peer's address. The proofs of the handshake cover the keys
/// of the TLS connection (RFC 9266), so that whoever stands between two nodes,
/// even with a good certificate, is found out. A proxy that ends TLS between
/// two nodes is thus not possible.
#[derive(Clone, Debug)]
pub struct PeerTls {
    files: Arc<PeerTlsFiles>,
    current: Arc<RwLock<Ends>>,
}

/// What a new connection takes.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) listener: Arc<ServerConfig>,
    pub(crate) dialler: Arc<ClientConfig>,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerTlsError {
    /// Certificate or key.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The file of the CA cannot be read as what it should be.
    #[error(transparent)]
    CaFile(#[from] FileError),
    /// A CA certificate that cannot be used.
    #[error("{}: it cannot be used as a CA: {problem}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The CAs of the system cannot be used.
    #[error("the system's own CAs cannot be used, and no peer CA is given: {0}")]
    System(rustls::Error),
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`PeerTlsError`] names the file and says what is wrong with it.
    pub fn load(files: PeerTlsFiles) -> Result<Self, PeerTlsError> {
        let current = Arc::new(RwLock::new(read(&files)?));
        Ok(Self { files: Arc::new(files), current })
    }

    /// Reads the files again, for the connections that come. If one of them is
    /// bad, all stay as they are.
    ///
    /// # Errors
    /// As of [`PeerTls::load`].
    pub fn reload(&self) -> Result<(), PeerTlsError> {
        let new = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(crate) fn current(&self) -> Ends {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The name in the certificate of the peer with this address, `host:port`.
pub(crate) fn server_name(address: &str) -> Option<ServerName<'static>> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

fn read(files: &PeerTlsFiles) -> Result<Ends, PeerTlsError> {
    let PeerTlsFiles { cert, key, ca } = files;
    let pair = CertifiedPair::read(cert, key).map_err(PairError::from)?;
    let unfit = |source| pair.unfit(source);
    let (chain, private) = pair.parts();
    let provider = Arc::new(ring::default_provider());
    let roots = ca.as_deref().map(|ca| roots(ca, &provider)).transpose()?;

    let listener = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unfit)?;
    let listener = match &roots {
        Some(roots) => listener.with_client_cert_verifier(Arc::clone(&roots.clients)),
        None => listener.with_no_client_auth(),
    };
    let mut listener = listener.with_single_cert(chain.clone(), private.clone_key()).map_err(unfit)?;
    // Every connection shows its certificates anew; they last long anyway.
    listener.send_tls13_tickets = 0;

    let dialler =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(unfit)?;
    let mut dialler = match roots {
        Some(roots) => {
            dialler.with_root_certificates(roots.all).with_client_auth_cert(chain, private).map_err(unfit)?
        }
        None => dialler.with_platform_verifier().map_err(PeerTlsError::System)?.with_no_client_auth(),
    };
    dialler.resumption = Resumption::disabled();
    Ok(Ends { listener: Arc::new(listener), dialler: Arc::new(dialler) })
}

struct Roots {
    all: Arc<RootCertStore>,
    clients: Arc<dyn rustls::server::danger::ClientCertVerifier>,
}

fn roots(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Roots, PeerTlsError> {
    let bad = |problem| PeerTlsError::Ca { path: path.to_owned(), problem };
    let mut all = RootCertStore::empty();
    for certificate in read_certificates(path, "CA certificate (PEM)")? {
        all.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    let all = Arc::new(all);
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&all), Arc::clone(provider))
        .build()
        .map_err(|error| bad(error.to_string()))?;
    Ok(Roots { all, clients })
}
