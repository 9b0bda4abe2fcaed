//! TLS, one way: the client verifies the server.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::TlsOptions;

/// Why TLS cannot be set up with these options.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadTls {
    #[error("the CA file {path} cannot be read")]
    File {
        path: PathBuf,
        #[source]
        source: BadPem,
    },
    #[error("the CA certificates are not PEM")]
    Pem(#[source] BadPem),
    #[error("there is no certificate among the CA certificates that were given")]
    NoCertificate,
    #[error("a CA certificate cannot be used, or the system's verifier cannot be set up")]
    Setup(#[source] rustls::Error),
    #[error("{0:?} is neither a host name nor an IP address")]
    ServerName(String),
}

/// What is wrong with a PEM text, in words.
#[derive(Debug, thiserror::Error)]
pub(crate) struct BadPem(pem::Error);

impl fmt::Display for BadPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // Of these the library shows the bytes.
            pem::Error::MissingSectionEnd { .. } => f.write_str("it ends in the middle of a certificate"),
            pem::Error::IllegalSectionStart { .. } => f.write_str("a line BEGIN in it is broken"),
            error @ (pem::Error::Base64Decode(_)
            | pem::Error::Io(_)
            | pem::Error::NoItemsFound
            | pem::Error::SectionTooLarge
            | _) => error.fmt(f),
        }
    }
}

/// Why the TLS of a server was refused, in words, with what to do.
#[derive(Debug)]
pub(crate) struct Unverified(pub(crate) rustls::Error);

impl fmt::Display for Unverified {
    #[allow(clippy::wildcard_enum_match_arm)] // The library has words for all others, tomorrow's too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rustls::Error::InvalidCertificate(problem) = &self.0 else { return self.0.fmt(f) };
        match problem {
            CertificateError::UnknownIssuer => f.write_str(
                "the server's certificate is not signed by a CA that is trusted here: give the CA that signed it",
            ),
            // The library tells it by no other name.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => f.write_str(
                "the server shows the certificate of a CA as its own, as `openssl req -x509` makes it: give the \
                 server a certificate that the CA has signed, with basicConstraints CA:FALSE",
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                write!(f, "the server's certificate has expired, or the clock of this machine is wrong ({problem})")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                write!(f, "the server's certificate is not valid yet, or the clock of this machine is wrong ({problem})")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                write!(f, "the server's certificate is for another name than that of the address ({problem})")
            }
            _ => write!(f, "the server's certificate cannot be verified ({problem})"),
        }
    }
}

impl std::error::Error for Unverified {}

/// Options that were checked.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the certificates and checks the names, those of `hosts` included.
    ///
    /// # Errors
    /// [`BadTls`] says what is wrong.
    pub(crate) fn new<'a>(
        options: &TlsOptions,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BadTls> {
        let server_name = options.server_name.as_deref().map(name).transpose()?;
        if server_name.is_none() {
            for host in hosts {
                name(host)?;
            }
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(BadTls::Setup)?;
        let builder = if options.accept_any_certificate {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        } else if options.ca_file.is_some() || options.ca_pem.is_some() {
            builder.with_root_certificates(roots(options)?)
        } else {
            builder.with_platform_verifier().map_err(BadTls::Setup)?
        };
        Ok(Self { connector: Arc::new(builder.with_no_client_auth()).into(), server_name })
    }

    /// The TLS handshake with a server of that host name.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name(host).map_err(io::Error::other)?,
        };
        self.connector.connect(name, socket).await
    }
}

fn name(text: &str) -> Result<ServerName<'static>, BadTls> {
    ServerName::try_from(text.to_owned()).map_err(|_| BadTls::ServerName(text.to_owned()))
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, BadTls> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &options.ca_file {
        let bad = |error| BadTls::File { path: path.clone(), source: BadPem(error) };
        for certificate in CertificateDer::pem_file_iter(path).map_err(bad)? {
            roots.add(certificate.map_err(bad)?).map_err(BadTls::Setup)?;
        }
    }
    if let Some(pem) = &options.ca_pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(|error| BadTls::Pem(BadPem(error)))?).map_err(BadTls::Setup)?;
        }
    }
    if roots.is_empty() { Err(BadTls::NoCertificate) } else { Ok(roots) }
}

/// What [`TlsOptions::dangerously_accept_any_certificate`] asks for.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_was_cut_off_is_told_in_words() {
        let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n";
        let options = TlsOptions::default().with_ca_pem(pem);
        let told = crate::error::chain(&Tls::new(&options, ["localhost"]).unwrap_err());
        assert!(told.contains("ends in the middle of a certificate"), "{told}");
    }
}
