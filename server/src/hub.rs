//! What every connection of a server has in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use ticketing_engine::{ConnId, Nanos, SECOND};
use tokio::sync::{mpsc, watch};

use crate::auth::{BadToken, ClientTokens};
use crate::clock::Clock;
use crate::config::{Config, Limits, TlsFiles, TokenSource};
use crate::conn::Message;
use crate::counters::Counters;
use crate::tls::{self, TlsError};
use crate::view::View;

/// Where the server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Leases of the last run may still be running.
    Grace,
    /// It serves.
    Serving,
    /// It takes no new connections and no new acquires.
    Draining,
    /// Every connection is being closed.
    Ending,
}

/// What every connection has in common.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) driver: mpsc::Sender<Message>,
    pub(crate) phase: watch::Sender<Phase>,
    /// What this server is to clients, which changes in a cluster.
    pub(crate) view: watch::Sender<View>,
    pub(crate) advertise: Option<String>,
    pub(crate) credentials: Credentials,
    pub(crate) last_conn: AtomicU64,
    /// When a refused client was last logged.
    pub(crate) last_refusal: AtomicU64,
}

/// Between two log lines about refused clients, who may come as often as they like.
const REFUSAL_LOG_INTERVAL: Nanos = 10 * SECOND;

impl Hub {
    /// A number that no connection had before.
    pub(crate) fn next_conn(&self) -> ConnId {
        ConnId(self.last_conn.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether it is time for another log line about refused clients.
    pub(crate) fn may_log_refusal(&self) -> bool {
        let now = self.clock.now().max(1);
        let due = |last| (last == 0 || now.saturating_sub(last) >= REFUSAL_LOG_INTERVAL).then_some(now);
        self.last_refusal.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

/// Certificate and client tokens, which can change while the server runs.
#[derive(Debug)]
pub(crate) struct Credentials {
    token: TokenSource,
    tls: Option<TlsFiles>,
    current: RwLock<Current>,
}

/// Those that hold for a connection that comes in now.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) tokens: Arc<ClientTokens>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// Why certificate or tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file of client tokens.
    #[error("{}: {problem}", path.display())]
    Token {
        /// Its name.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: BadToken,
    },
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Credentials {
    /// Reads them for the first time.
    pub(crate) fn load(config: &Config) -> Result<Self, CredentialsError> {
        let (token, tls) = (config.client_token.clone(), config.tls.clone());
        let current = RwLock::new(read(&token, tls.as_ref())?);
        Ok(Self { token, tls, current })
    }

    pub(crate) fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads them again. If one is bad, all stay as they are. Sessions that are open stay open.
    pub(crate) fn reload(&self) -> Result<(), CredentialsError> {
        let new = read(&self.token, self.tls.as_ref())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

fn read(token: &TokenSource, tls: Option<&TlsFiles>) -> Result<Current, CredentialsError> {
    let tokens = match token {
        TokenSource::None => ClientTokens::none(),
        TokenSource::Environment(tokens) => tokens.clone(),
        TokenSource::File(path) => ClientTokens::read(path)
            .map_err(|problem| CredentialsError::Token { path: path.clone(), problem })?,
    };
    Ok(Current { tokens: Arc::new(tokens), tls: tls.map(tls::load).transpose()? })
}
