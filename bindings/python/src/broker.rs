//! The broker, from Python's side.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use ticketing::embed::Embedded;
use ticketing::{AcquireOptions, Builder, ConnectionStatus, Domain, TlsOptions, Token};

use crate::call::{Call, Home};
use crate::failure::{Failure, Refusal};
use crate::inbox::Inbox;
use crate::process::{Inside, Own};
use crate::seconds;

/// The core's broker, with the thread on which its connections live.
#[pyclass(frozen, module = "ticketing._ticketing")]
pub(crate) struct Broker(Home);

/// Address, open, domain, node, leads, extension, last error.
type Status = (String, bool, Option<String>, Option<u64>, Option<bool>, bool, Option<String>);

/// What becomes of a start.
#[derive(IntoPyObject)]
pub(crate) enum Started {
    Broker(Broker),
    Failure(Failure),
}

/// What is known of the connections.
#[derive(IntoPyObject)]
pub(crate) enum Connections {
    Known(Vec<Status>),
    Failure(Failure),
}

/// How TLS is spoken: a CA file, CA certificates, a server name, and whether any certificate will do.
#[derive(FromPyObject)]
struct Tls(Option<PathBuf>, Option<Vec<u8>>, Option<String>, bool);

impl From<Tls> for TlsOptions {
    fn from(Tls(ca_file, ca_pem, server_name, any): Tls) -> Self {
        let mut options = Self::default();
        options.ca_file = ca_file;
        options.ca_pem = ca_pem;
        options.server_name = server_name;
        if any { options.dangerously_accept_any_certificate() } else { options }
    }
}

#[pymethods]
impl Broker {
    /// Starts a broker, which connects in the background.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "as arguments of Python come")]
    fn start(
        py: Python<'_>,
        addresses: Vec<Bound<'_, PyString>>,
        token: Option<Vec<u8>>,
        tls: Option<Tls>,
        expect_domain: Option<&Bound<'_, PyString>>,
        max_pending: Option<&Bound<'_, PyInt>>,
    ) -> Started {
        let mut builder = match builder(&addresses, expect_domain, max_pending) {
            Ok(builder) => builder,
            Err(refusal) => return Started::Failure(refusal.into()),
        };
        if let Some(token) = token {
            builder = builder.token(Token::from(token));
        }
        if let Some(tls) = tls {
            builder = builder.tls(tls.into());
        }
        let inside = Inside::enter();
        let started = py.detach(|| Embedded::start(builder));
        drop(inside);
        match started {
            Ok(embedded) => Started::Broker(Self(Arc::new(Own::new(embedded)))),
            Err(error) => Started::Failure(Failure::from_start(&error)),
        }
    }

    /// Acquires a lock.
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the method in Python, flat because it is the hot path"
    )]
    fn acquire(
        &self,
        inbox: Option<&Bound<'_, Inbox>>,
        number: u64,
        key: &Bound<'_, PyString>,
        wait: &Bound<'_, PyAny>,
        lease: &Bound<'_, PyAny>,
        min_remaining: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let wait = seconds::read("wait", wait)?;
        let lease = seconds::read("lease", lease)?;
        let min_remaining = min_remaining.map(|value| seconds::read("min_remaining", value)).transpose()?;
        let request = || {
            let options =
                AcquireOptions { wait: wait?, lease: lease?, min_remaining: min_remaining.transpose()? };
            let embedded = self.0.get().ok_or(Refusal::Forked)?;
            Ok(embedded.broker().acquire_with(text("the key", key)?, options))
        };
        let request = request();
        let placement = request.as_ref().ok().map(ticketing::Acquire::placement);
        Ok(Call::start(&self.0, inbox.map(Bound::get), number, request).with_placement(placement))
    }

    /// Releases by key and token.
    fn release(
        &self,
        inbox: Option<&Bound<'_, Inbox>>,
        number: u64,
        key: &Bound<'_, PyString>,
        token: &Bound<'_, PyInt>,
    ) -> Call {
        let request = self.broker().and_then(|broker| {
            let key = text("the key", key)?.to_owned();
            let token = token.extract::<u64>().map_err(|_| {
                Refusal::Invalid(format!("the token is {token}; a fencing token is 0 to 2^64 - 1"))
            })?;
            Ok(async move { broker.release(&key, token).await })
        });
        Call::start(&self.0, inbox.map(Bound::get), number, request)
    }

    /// Waits until a session is open.
    fn wait_ready(
        &self,
        inbox: Option<&Bound<'_, Inbox>>,
        number: u64,
        timeout: &Bound<'_, PyAny>,
    ) -> PyResult<Call> {
        let timeout = seconds::read("timeout", timeout)?;
        let request = self.broker().and_then(|broker| {
            let timeout = timeout?;
            Ok(async move { broker.wait_ready(timeout).await })
        });
        Ok(Call::start(&self.0, inbox.map(Bound::get), number, request))
    }

    /// Ends the broker in order; its thread ends right after.
    fn close(&self, inbox: Option<&Bound<'_, Inbox>>, number: u64) -> Call {
        let request = self.broker().map(|broker| async move {
            broker.close().await;
            Ok(())
        });
        Call::start(&self.0, inbox.map(Bound::get), number, request)
    }

    /// Waits for the end of the thread of a broker that was closed.
    fn join(&self, py: Python<'_>) {
        if let Some(embedded) = self.0.get() {
            let _inside = Inside::enter();
            py.detach(|| embedded.close());
        }
    }

    /// Whether it was made in this process.
    fn is_here(&self) -> bool {
        self.0.get().is_some()
    }

    /// How the connections stand.
    fn connections(&self) -> Connections {
        match self.0.get() {
            Some(embedded) => {
                Connections::Known(embedded.broker().connections().into_iter().map(status).collect())
            }
            None => Connections::Failure(Refusal::Forked.into()),
        }
    }
}

impl Broker {
    fn broker(&self) -> Result<ticketing::TicketBroker, Refusal> {
        self.0.get().map(|embedded| embedded.broker().clone()).ok_or(Refusal::Forked)
    }
}

/// The settings that can be wrong before the core sees them.
fn builder(
    addresses: &[Bound<'_, PyString>],
    expect_domain: Option<&Bound<'_, PyString>>,
    max_pending: Option<&Bound<'_, PyInt>>,
) -> Result<Builder, Refusal> {
    let mut builder = Builder::default();
    for address in addresses {
        builder = builder.address(text("an address", address)?);
    }
    if let Some(digits) = expect_domain {
        let domain = Domain::parse(text("expect_domain", digits)?).ok_or_else(|| {
            Refusal::Invalid(format!("expect_domain is {digits}; a fencing domain has 32 hexadecimal digits"))
        })?;
        builder = builder.expect_domain(domain);
    }
    if let Some(requests) = max_pending {
        builder = builder.max_pending(requests.extract().map_err(|_| {
            Refusal::Invalid(format!("max_pending is {requests}; it must be a positive number"))
        })?);
    }
    Ok(builder)
}

fn status(status: ConnectionStatus) -> Status {
    let ConnectionStatus { address, open, domain, node, leads, extension, last_error } = status;
    (address, open, domain.map(|domain| domain.to_string()), node, leads, extension, last_error)
}

/// The UTF-8 of a string; one with half a surrogate pair has none.
fn text<'a>(what: &str, string: &'a Bound<'_, PyString>) -> Result<&'a str, Refusal> {
    string
        .to_str()
        .map_err(|_| Refusal::Invalid(format!("{what} is not valid Unicode: it has half a surrogate pair")))
}
