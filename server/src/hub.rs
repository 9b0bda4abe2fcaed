//! What every connection of a server has in common.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use ticketing_engine::{ConnId, Nanos, SECOND};
use ticketing_peer::PairError;
use tokio::sync::{Mutex, mpsc, watch};

use crate::auth::{BadToken, ClientTokens};
use crate::clock::Clock;
use crate::config::{Config, Limits, TlsFiles, TokenSource};
use crate::conn::Message;
use crate::counters::Counters;
use crate::files::{Unread, beside};
use crate::tls;
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
    /// When a refused client was last logged, for each sort.
    pub(crate) last_refusals: [AtomicU64; Refused::SORTS],
}

/// What a log line about a refused client says. Each sort has lines of its own: a crowd
/// of one hides none of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    TooMany,
    Tls,
    /// It did not answer the greeting.
    Silent,
    /// It answered wrongly.
    Unproved,
}

impl Refused {
    pub(crate) const SORTS: usize = 4;
}

/// Between two such lines of a sort: clients may come as often as they like.
const REFUSAL_LOG_INTERVAL: Nanos = 10 * SECOND;

impl Hub {
    /// A number that no connection had before.
    pub(crate) fn next_conn(&self) -> ConnId {
        ConnId(self.last_conn.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether it is time for another log line about clients that were refused for this.
    pub(crate) fn may_log(&self, refused: Refused) -> bool {
        let [too_many, tls, silent, unproved] = &self.last_refusals;
        let last = match refused {
            Refused::TooMany => too_many,
            Refused::Tls => tls,
            Refused::Silent => silent,
            Refused::Unproved => unproved,
        };
        let now = self.clock.now().max(1);
        let due = |last| (last == 0 || now.saturating_sub(last) >= REFUSAL_LOG_INTERVAL).then_some(now);
        last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

/// Certificate and client tokens, which can change while the server runs.
#[derive(Debug)]
pub(crate) struct Credentials {
    files: Files,
    current: RwLock<Current>,
    /// Held by whoever reads the files, also when nobody waits for it any more.
    reading: Arc<Mutex<()>>,
}

/// Where they come from.
#[derive(Clone, Debug)]
struct Files {
    token: TokenSource,
    tls: Option<TlsFiles>,
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
    #[error("--client-token-file {}: {problem}", path.display())]
    Token {
        /// Its name.
        path: PathBuf,
        /// What is wrong with it.
        problem: BadToken,
    },
    /// The certificate.
    #[error("--tls-cert, --tls-key: {0}")]
    Tls(#[from] PairError),
    /// Nothing came of reading.
    #[error("{files}: {problem}")]
    Unread {
        /// Which files.
        files: String,
        /// What went wrong.
        problem: Unread,
    },
}

impl Credentials {
    /// Reads them for the first time.
    pub(crate) async fn load(config: &Config) -> Result<Self, CredentialsError> {
        let files = Files { token: config.client_token.clone(), tls: config.tls.clone() };
        let reading = Arc::default();
        let current = RwLock::new(files.read(&reading).await?);
        Ok(Self { files, current, reading })
    }

    /// Reads them on this thread.
    #[cfg(test)]
    pub(crate) fn load_here(config: &Config) -> Result<Self, CredentialsError> {
        let files = Files { token: config.client_token.clone(), tls: config.tls.clone() };
        let current = RwLock::new(files.read_here()?);
        Ok(Self { files, current, reading: Arc::default() })
    }

    pub(crate) fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads them again. If one is bad, all stay as they are. Sessions that are open stay open.
    pub(crate) async fn reload(&self) -> Result<(), CredentialsError> {
        let new = self.files.read(&self.reading).await?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

impl Files {
    /// One at a time: each attempt on a file system that hangs keeps a thread.
    async fn read(&self, reading: &Arc<Mutex<()>>) -> Result<Current, CredentialsError> {
        let wrong = |problem| CredentialsError::Unread { files: self.names(), problem };
        let turn = Arc::clone(reading).try_lock_owned().map_err(|_| wrong(Unread::Hangs))?;
        let files = self.clone();
        let read = move || {
            let _turn = turn;
            files.read_here()
        };
        beside(read).await.map_err(wrong)?
    }

    fn read_here(&self) -> Result<Current, CredentialsError> {
        let tokens = match &self.token {
            TokenSource::None => ClientTokens::none(),
            TokenSource::Environment(tokens) => tokens.clone(),
            TokenSource::File(path) => ClientTokens::read(path)
                .map_err(|problem| CredentialsError::Token { path: path.clone(), problem })?,
        };
        Ok(Current { tokens: Arc::new(tokens), tls: self.tls.as_ref().map(tls::load).transpose()? })
    }

    fn names(&self) -> String {
        let token = match &self.token {
            TokenSource::File(path) => Some(path),
            TokenSource::None | TokenSource::Environment(_) => None,
        };
        let tls = self.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]);
        let names = token.into_iter().chain(tls).map(|path| path.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hub;

    #[tokio::test]
    async fn while_one_attempt_hangs_there_is_no_other() {
        let (hub, _inbox) = hub();
        let hanging = Arc::clone(&hub.credentials.reading).try_lock_owned().unwrap();
        let refused = hub.credentials.reload().await.unwrap_err();
        assert!(matches!(refused, CredentialsError::Unread { problem: Unread::Hangs, .. }), "{refused}");
        drop(hanging);
        hub.credentials.reload().await.unwrap();
    }
}
