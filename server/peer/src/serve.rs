//! The listener: accepts connections, has them prove the secret, serves them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, info, warn};

use crate::answering::answer_calls;
use crate::config::Config;
use crate::handshake::{Binding, HELLO, Incoming, Unfit, Welcomed, answer, part};
use crate::identity::Link;
use crate::quiet::Quiet;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::socket::{self, Accepted, Stream};

/// Pause after an accept that failed: as a rule descriptors have run out, and
/// the connection is still there to be accepted when one is free.
const RETRY: Duration = Duration::from_millis(100);

/// Told to whoever connects and waits for a greeting, as clients do. It is a
/// frame of the client protocol, with a reason that only this port gives.
const TO_A_CLIENT: &[u8] = b"Epeer_port\n";

/// Serves peers until `shutdown` completes, or the future is dropped; then every
/// connection is closed at once.
///
/// Connections that do not prove the secret in time are closed. Refusals are
/// logged with their reasons, one line of a kind in ten seconds.
pub async fn serve(
    listener: TcpListener,
    service: Arc<dyn Service>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(config.limits.connections.min(Semaphore::MAX_PERMITS)));
    let door = Arc::new(Door { service, config, slots, log: Mutex::default() });
    let mut connections = JoinSet::new();
    let mut half_open = HalfOpen::default();
    let mut failing = false;
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    error!(%error, "the task of a peer connection ended");
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, peer)) => {
                if failing {
                    info!("peers can connect again");
                    failing = false;
                }
                let evicted = half_open.admit(&door);
                let accepted = Instant::now();
                connections.spawn(Newcomer { door: Arc::clone(&door), peer, accepted }.live(tcp, evicted));
            }
            // The dialler gave up before its turn came.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if !failing {
                    warn!(%error, "no peer can connect; those that are connected go on (is the limit of open files too low?)");
                    failing = true;
                }
                sleep(RETRY).await;
            }
        }
    }
    connections.shutdown().await;
}

/// What all connections of a listener have in common.
struct Door {
    service: Arc<dyn Service>,
    config: Config,
    /// One for each connection that is served.
    slots: Arc<Semaphore>,
    log: Mutex<Quiet>,
}

impl Door {
    fn may_say(&self, kind: &'static str) -> Option<u64> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).may_say(kind, Instant::now())
    }
}

/// The connections that have not proved the secret yet, the oldest first.
#[derive(Default)]
struct HalfOpen(VecDeque<oneshot::Sender<()>>);

impl HalfOpen {
    /// Makes place for one more. What is returned completes when it must make
    /// place itself.
    fn admit(&mut self, door: &Door) -> oneshot::Receiver<()> {
        self.0.retain(|waiting| !waiting.is_closed());
        while self.0.len() >= door.config.limits.half_open.max(1) {
            self.0.pop_front();
            if let Some(left_out) = door.may_say("half-open") {
                warn!(left_out, "too many connections have not authenticated yet: the oldest makes place");
            }
        }
        let (place, evicted) = oneshot::channel();
        self.0.push_back(place);
        evicted
    }
}

/// A connection that was accepted and has proved nothing yet.
struct Newcomer {
    door: Arc<Door>,
    peer: SocketAddr,
    accepted: Instant,
}

impl Newcomer {
    async fn live(self, tcp: TcpStream, evicted: oneshot::Receiver<()>) {
        let admitted = tokio::select! {
            admitted = self.admit(tcp) => admitted,
            _ = evicted => None,
        };
        let Some((stream, Welcomed { link, place })) = admitted else { return };
        let Self { door, peer, .. } = self;
        debug!(%peer, from = %link.from, "a peer is connected");
        let handler = door.service.connected(link);
        let ended = answer_calls(stream, handler, &door.config.limits).await;
        drop(place);
        match ended.warning().map(|kind| door.may_say(kind)) {
            Some(Some(left_out)) => {
                warn!(%peer, from = %link.from, reason = %ended, left_out, "the connection of a peer was closed");
            }
            Some(None) | None => debug!(%peer, from = %link.from, reason = %ended, "a peer is gone"),
        }
    }

    /// TLS and handshake, until the deadline.
    async fn admit(&self, tcp: TcpStream) -> Option<(Box<dyn Stream>, Welcomed<OwnedSemaphorePermit>)> {
        if let Err(error) = socket::tune(&tcp) {
            debug!(peer = %self.peer, %error, "a connection ended before it began");
            return None;
        }
        let tcp = Accepted(tcp);
        let deadline = self.accepted + self.door.config.limits.handshake_timeout;
        let Some(tls) = &self.door.config.tls else {
            return self.welcome(Box::new(tcp), Binding::default(), deadline).await;
        };
        let acceptor = TlsAcceptor::from(tls.current().listener);
        let problem = match timeout_at(deadline, acceptor.accept(tcp)).await {
            Ok(Ok(stream)) => match socket::binding(stream.get_ref().1) {
                Ok(binding) => return self.welcome(Box::new(stream), binding, deadline).await,
                Err(error) => error.to_string(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        if let Some(left_out) = self.door.may_say("TLS failed") {
            warn!(peer = %self.peer, problem, left_out, "the TLS handshake of a peer failed (a peer without TLS, or one whose CA or certificate does not fit?)");
        }
        None
    }

    async fn welcome(
        &self,
        mut stream: Box<dyn Stream>,
        binding: Binding,
        deadline: Instant,
    ) -> Option<(Box<dyn Stream>, Welcomed<OwnedSemaphorePermit>)> {
        let mut hello = Incoming::<HELLO>::new();
        let secret = &self.door.config.secret;
        let answered = answer(&mut stream, &mut hello, secret, &binding, |from, meant| {
            let answering = self.door.service.me();
            (answering, self.judge(&Link { from, meant, answering }))
        });
        match timeout_at(deadline, answered).await {
            Ok(Ok(welcomed)) => return Some((stream, welcomed)),
            Ok(Err(unfit)) => {
                self.tell(&unfit);
                if matches!(unfit, Unfit::Refused { .. }) {
                    let _ = timeout_at(deadline, part(&mut stream)).await;
                }
            }
            Err(_) if hello.is_empty() => {
                if let Some(left_out) = self.door.may_say("silent") {
                    warn!(peer = %self.peer, left_out, "a connection to the peer port said nothing (a client? it is served on another port)");
                }
                // There is room in the buffer of a socket that was never written to.
                let _ = timeout_at(deadline + RETRY, stream.write_all(TO_A_CLIENT)).await;
                let _ = timeout_at(deadline + RETRY, stream.shutdown()).await;
            }
            Err(_) => {
                if let Some(left_out) = self.door.may_say("late") {
                    warn!(peer = %self.peer, left_out, "the handshake of a peer took too long");
                }
            }
        }
        None
    }

    fn judge(&self, link: &Link) -> Result<OwnedSemaphorePermit, Refusal> {
        link.check()?;
        self.door.service.admit(link.from, link.meant)?;
        Arc::clone(&self.door.slots).try_acquire_owned().map_err(|_| Refusal::Full)
    }

    fn tell(&self, unfit: &Unfit) {
        let peer = self.peer;
        match unfit {
            Unfit::Refused { refusal, from, meant } => {
                if let Some(left_out) = self.door.may_say(refusal.kind()) {
                    warn!(%peer, says_it_is = %from, means = %meant, reason = %refusal, left_out, "a peer was refused");
                }
            }
            Unfit::Stranger(stranger) => {
                if let Some(left_out) = self.door.may_say(stranger.kind()) {
                    warn!(%peer, reason = %stranger, left_out, "a connection to the peer port was refused");
                }
            }
            Unfit::Gone(error) => debug!(%peer, %error, "a connection ended in the middle of the handshake"),
            Unfit::Random(error) => {
                error!(%error, "no random bytes for a challenge: no peer can authenticate");
            }
        }
    }
}
