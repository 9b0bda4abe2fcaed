//! Certificates for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

/// A certificate authority that lives as long as its test, with its files.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

/// Files of a server certificate.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new root.
    ///
    /// # Panics
    /// If there is no room for its files.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for certificates");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a root certificate");
        fs::write(folder.path().join("ca.pem"), root.pem()).expect("room for the root certificate");
        Self { folder, root: root.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// The root certificate, PEM.
    #[must_use]
    pub fn root_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server certificate for these names (host names or IP addresses), in
    /// files named after `name`; an earlier one of that name is replaced.
    ///
    /// # Panics
    /// If a name is no name, or there is no room for the files.
    #[must_use]
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Identity {
        let file = |extension: &str| self.folder.path().join(format!("{name}.{extension}"));
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>());
        let leaf = params.expect("host names").signed_by(&key, &self.issuer).expect("a certificate");
        write(&file("pem"), &leaf.pem());
        write(&file("key"), &key.serialize_pem());
        Identity { certificate: file("pem"), key: file("key") }
    }

    /// A certificate that is a CA and a server's at once, signed by itself, as
    /// `openssl req -x509` makes it.
    ///
    /// # Panics
    /// As [`issue`](Self::issue).
    #[must_use]
    pub fn issue_self_signed(&self, name: &str, hosts: &[&str]) -> Identity {
        let file = |extension: &str| self.folder.path().join(format!("{name}.{extension}"));
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>());
        let mut params = params.expect("host names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write(&file("pem"), &params.self_signed(&key).expect("a certificate").pem());
        write(&file("key"), &key.serialize_pem());
        Identity { certificate: file("pem"), key: file("key") }
    }

    /// A client configuration that trusts this authority alone.
    ///
    /// # Panics
    /// If the provider of cryptography lacks what it should have.
    #[must_use]
    pub fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("a root certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Arc::new(config.expect("protocol versions").with_root_certificates(roots).with_no_client_auth())
    }
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
