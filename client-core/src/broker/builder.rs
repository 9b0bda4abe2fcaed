//! From settings to a running broker.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::TicketBroker;
use super::directory::Directory;
use super::keeper::keep;
use super::shared::{Lifeline, Shared};
use crate::address::Address;
use crate::error::{Cause, Invalid};
use crate::link::Config;
use crate::tls::Tls;
use crate::{Domain, TicketError, TlsOptions, Token};

/// How many acquires, and how many releases, may be pending at once.
const MAX_PENDING: usize = 16_384;

/// Builds a [`TicketBroker`].
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ticketing::{TicketBroker, TlsOptions};
///
/// let broker = TicketBroker::builder()
///     .addresses(["locks-1.internal:5225", "locks-2.internal:5225", "locks-3.internal:5225"])
///     .token(std::env::var("TICKETING_CLIENT_TOKEN")?)
///     .tls(TlsOptions::default().with_ca_file("/etc/ticketing/ca.pem"))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before build()"]
pub struct Builder {
    addresses: Vec<String>,
    token: Token,
    tls: Option<TlsOptions>,
    domain: Option<Domain>,
    max_pending: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            token: Token::default(),
            tls: None,
            domain: None,
            max_pending: MAX_PENDING,
        }
    }
}

impl Builder {
    /// Adds the address of one server: `host:port`, an IPv6 address in
    /// brackets; without a port it is 5225. Names are resolved at each attempt.
    pub fn address(mut self, address: impl AsRef<str>) -> Self {
        self.addresses.push(address.as_ref().to_owned());
        self
    }

    /// Adds the addresses of several servers. Only configured addresses are
    /// ever dialled, so name all nodes of a cluster.
    pub fn addresses<A: AsRef<str>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses.extend(addresses.into_iter().map(|address| address.as_ref().to_owned()));
        self
    }

    /// The secret shared with the servers. Default: none.
    pub fn token(mut self, token: impl Into<Token>) -> Self {
        self.token = token.into();
        self
    }

    /// Speaks TLS. Default: plain TCP.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Talks only to servers of this fencing domain, so that tokens stay
    /// comparable. Default: any.
    pub fn expect_domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// How many acquires, and how many releases, may be pending at once; more
    /// are refused with `ClientCapacity`. An acquire whose caller has gone counts until
    /// it is answered, and until its lock is given back if it was granted.
    /// Default: 16,384.
    pub fn max_pending(mut self, requests: usize) -> Self {
        self.max_pending = requests;
        self
    }

    /// Starts the broker's tasks on the current tokio runtime. Returns at once
    /// and connects in the background.
    ///
    /// # Errors
    /// `InvalidInput` for settings that make no sense, or outside a runtime;
    /// `Tls` for certificates or names that cannot be used.
    ///
    /// # Panics
    /// On a runtime without timers or without IO, with the words of tokio: it must be
    /// built with `enable_all`, as `#[tokio::main]` does.
    pub fn build(self) -> Result<TicketBroker, TicketError> {
        let mut addresses = Vec::new();
        for text in &self.addresses {
            let address = Address::parse(text).map_err(Invalid::Address)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if self.max_pending == 0 {
            return Err(Invalid::MaxPending.into());
        }
        match addresses.as_slice() {
            [] => return Err(Invalid::NoAddress.into()),
            // One lost socket must not stop the service.
            [only] => addresses.push(only.clone()),
            _ => {}
        }
        let hosts = addresses.iter().map(|address| &*address.host);
        let tls = self.tls.as_ref().map(|options| Tls::new(options, hosts)).transpose();
        let config =
            Config { token: self.token, tls: tls.map_err(Cause::BadTls)?, expected_domain: self.domain };
        let runtime = Handle::try_current().map_err(|_| Invalid::NoRuntime)?;
        demand_drivers();
        let (compensations, jobs) = mpsc::unbounded_channel();
        let directory = Directory::new(addresses.iter().map(|address| Arc::clone(&address.text)));
        let shared = Shared::new(runtime.clone(), config, directory, self.max_pending, compensations);
        let shared = Arc::new(shared);
        runtime.spawn(keep(Arc::clone(&shared), addresses, jobs));
        Ok(TicketBroker(Arc::new(Lifeline(shared))))
    }
}

/// Panics where the runtime lacks what every connection needs. A runtime does not tell
/// what it has; to find out here is better than in the first acquire.
fn demand_drivers() {
    drop(tokio::time::sleep(std::time::Duration::ZERO));
    #[cfg(unix)]
    drop(tokio::net::UnixStream::pair());
}
