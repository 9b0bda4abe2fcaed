//! What a broker is told, and durations, as JavaScript has them.

use std::time::Duration;

use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use ticketing::{Builder, Domain, ErrorKind, TlsOptions, Token};

use crate::failure::Failure;

/// The options of a broker. Their types were checked by JavaScript.
#[napi(object, object_to_js = false)]
pub struct Settings {
    /// Where the servers are.
    pub addresses: Vec<String>,
    /// The secret shared with them.
    pub token: Option<Buffer>,
    /// TLS, if it is to be spoken.
    pub tls: Option<Tls>,
    /// The one fencing domain to talk to.
    pub expect_domain: Option<String>,
    /// How many acquires, and how many releases, may be pending.
    pub max_pending: Option<u32>,
}

/// How a certificate is verified.
#[napi(object, object_to_js = false)]
pub struct Tls {
    /// A PEM file of the certificates to trust.
    pub ca_file: Option<String>,
    /// The same as bytes.
    pub ca_pem: Option<Buffer>,
    /// The name that the certificate must have.
    pub server_name: Option<String>,
    /// Whether any certificate will do.
    pub dangerously_accept_any_certificate: bool,
}

impl Settings {
    pub(crate) fn into_builder(self) -> Result<Builder, Box<Failure>> {
        let mut builder = Builder::default().addresses(&self.addresses);
        if let Some(secret) = self.token {
            builder = builder.token(Token::from(Vec::from(secret)));
        }
        if let Some(tls) = self.tls {
            builder = builder.tls(tls.into());
        }
        if let Some(digits) = self.expect_domain {
            let domain = Domain::parse(&digits).ok_or_else(|| {
                let message =
                    format!("expectDomain is {digits:?}; a fencing domain has 32 hexadecimal digits");
                Box::new(Failure::new(ErrorKind::InvalidInput.as_str(), message))
            })?;
            builder = builder.expect_domain(domain);
        }
        if let Some(requests) = self.max_pending {
            builder = builder.max_pending(requests as usize);
        }
        Ok(builder)
    }
}

impl From<Tls> for TlsOptions {
    fn from(tls: Tls) -> Self {
        let mut options = Self::default();
        options.ca_file = tls.ca_file.map(Into::into);
        options.ca_pem = tls.ca_pem.map(Into::into);
        options.server_name = tls.server_name;
        if tls.dangerously_accept_any_certificate {
            options.dangerously_accept_any_certificate()
        } else {
            options
        }
    }
}

/// Seconds as a duration, rounded up to a nanosecond, so that the core can round
/// up to a second. What is no length of time, which JavaScript has refused, or
/// too long to count, is the longest there is, which the core refuses where it
/// matters.
pub(crate) fn duration(secs: f64) -> Duration {
    let nearest = Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX);
    if nearest.as_secs_f64() < secs { nearest.saturating_add(Duration::from_nanos(1)) } else { nearest }
}
