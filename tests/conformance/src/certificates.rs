//! Certificates, made anew for each run.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use crate::scenario::{Ca, NodeTls};

/// Both authorities. A client is told only of the known one.
pub(crate) struct Authorities {
    known: CertifiedIssuer<'static, KeyPair>,
    other: CertifiedIssuer<'static, KeyPair>,
}

impl Authorities {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { known: authority("Known authority")?, other: authority("Other authority")? })
    }

    /// The certificate of the known authority.
    pub(crate) fn known_pem(&self) -> String {
        self.known.pem()
    }

    pub(crate) fn acceptor(&self, tls: &NodeTls) -> Result<TlsAcceptor> {
        let issuer = match tls.issuer {
            Ca::Known => &self.known,
            Ca::Other => &self.other,
        };
        let mut params = CertificateParams::new(tls.names.clone())?;
        if tls.expired {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}
