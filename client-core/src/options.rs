//! What a broker is told: credentials, TLS, and the wishes of one acquire.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What an acquire asks for. A plain struct: set what differs from the default.
///
/// ```
/// use std::time::Duration;
/// use ticketing::AcquireOptions;
///
/// let options = AcquireOptions { lease: Duration::from_secs(10), ..AcquireOptions::default() };
/// assert_eq!(options.wait, Duration::from_secs(30));
/// assert_eq!(options.min_remaining, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireOptions {
    /// How long to wait for the lock, up to 255 s. 0: one immediate try that
    /// never queues. Fractions of a second are rounded up. Default: 30 s.
    pub wait: Duration,
    /// After how long the server takes the lock back by itself, 1 s to 250 s:
    /// longer than the slowest run of the critical section. Fractions of a
    /// second are rounded up. Default: 60 s.
    pub lease: Duration,
    /// The least time that must be left of the lease when the lock is granted;
    /// with less, it is released and
    /// [`InsufficientLease`](crate::ErrorKind::InsufficientLease) is reported. Less than
    /// 99.5 % of the lease: the rest is for the drift of two clocks, so more is never left.
    /// Default: any time at all.
    pub min_remaining: Option<Duration>,
}

impl Default for AcquireOptions {
    fn default() -> Self {
        Self { wait: Duration::from_secs(30), lease: Duration::from_secs(60), min_remaining: None }
    }
}

/// The secret that client and server share. It never crosses the wire, and its
/// `Debug` output says nothing about it.
///
/// ```
/// use ticketing::Token;
/// assert_eq!(format!("{:?}", Token::from("a secret of 16+ bytes")), "Token(..)");
/// ```
#[derive(Clone, Default)]
pub struct Token(Vec<u8>);

impl Token {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl From<&str> for Token {
    fn from(secret: &str) -> Self {
        Self(secret.as_bytes().to_vec())
    }
}

impl From<String> for Token {
    fn from(secret: String) -> Self {
        Self(secret.into_bytes())
    }
}

impl From<Vec<u8>> for Token {
    fn from(secret: Vec<u8>) -> Self {
        Self(secret)
    }
}

/// How a server's certificate is verified.
///
/// By default the operating system's own verifier and roots check the chain,
/// and the host part of each address is the name that the certificate must have.
///
/// ```
/// use ticketing::TlsOptions;
///
/// let private_ca = TlsOptions::default().with_ca_file("/etc/ticketing/ca.pem");
/// let by_ip = TlsOptions::default().with_server_name("locks.internal");
/// # let _ = (private_ca, by_ip);
/// ```
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// A PEM file with the certificates to trust, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The same as bytes; both may be given.
    pub ca_pem: Option<Vec<u8>>,
    /// The name that the certificate must have, in place of each address's host.
    pub server_name: Option<String>,
    pub(crate) accept_any_certificate: bool,
}

impl TlsOptions {
    /// Trusts the certificates of this PEM file, in place of the system's.
    #[must_use]
    pub fn with_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Trusts these PEM certificates, in place of the system's.
    #[must_use]
    pub fn with_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Expects this name in the certificate, in place of each address's host.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Turns every check of the certificate off: anyone on the path can then
    /// read and change all that is said, and hand out locks. For experiments only.
    #[must_use]
    pub fn dangerously_accept_any_certificate(mut self) -> Self {
        self.accept_any_certificate = true;
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca_file", &self.ca_file)
            .field("ca_pem", &self.ca_pem.as_ref().map(Vec::len))
            .field("server_name", &self.server_name)
            .field("accept_any_certificate", &self.accept_any_certificate)
            .finish()
    }
}
