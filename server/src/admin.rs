//! The admin pages: health, status, metrics. Small answers over HTTP, on an
//! address of their own.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use ticketing_cluster::{Cluster, Stage};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, Sleep, sleep, timeout_at};

use crate::driver::Published;
use crate::hub::{Hub, Phase};
use crate::metrics;

/// Connections at one time.
const MAX_CONNECTIONS: usize = 64;

/// With all places taken, the oldest connection makes room for the next when it has
/// had this time: whoever stalls does not keep the others out.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// After this a connection is cut, whatever it is at.
const LONGEST_TIME: Duration = Duration::from_secs(10);

/// Pause after an accept that failed.
const RETRY: Duration = Duration::from_millis(100);

/// What the pages tell about.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) hub: Arc<Hub>,
    pub(crate) published: Published,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) has_peers: bool,
    /// The task that accepts clients.
    pub(crate) listener: AbortHandle,
    pub(crate) started: Instant,
}

impl Admin {
    /// What keeps it from granting, if anything does.
    fn obstacle(&self) -> Option<&'static str> {
        match *self.hub.phase.borrow() {
            _ if self.hub.driver.is_closed() || self.listener.is_finished() => Some("failed"),
            Phase::Grace => Some("waiting until old leases have run out"),
            Phase::Draining | Phase::Ending => Some("shutting down"),
            Phase::Serving => self.cluster.as_ref().and_then(obstacle_in_cluster),
        }
    }
}

/// A majority that was not seen for this long is missed.
const OUT_OF_TOUCH: Duration = Duration::from_secs(2);

fn obstacle_in_cluster(cluster: &Cluster) -> Option<&'static str> {
    let standing = cluster.standing().borrow().clone();
    match standing.stage {
        Stage::Blank => Some("in no cluster: waiting to be initialised, or to come back into one"),
        Stage::Forming => Some("the cluster has not begun"),
        Stage::Over => Some("the cluster has ended: the memory of a majority of its nodes is lost"),
        Stage::Superseded => Some("another process has taken this node's place"),
        Stage::Broken => Some("failed"),
        Stage::Member if cluster.out_of_touch() > OUT_OF_TOUCH => Some("cut off from the majority"),
        Stage::Member if standing.leader.is_none() => Some("no leader is known"),
        Stage::Member => None,
    }
}

/// Serves the pages for ever.
pub(crate) async fn serve(listener: TcpListener, admin: Admin) {
    let pages = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(metrics_page))
        .route("/replace/{slot}", post(replace))
        .with_state(admin);
    let (room, spare) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), Spare::default());
    spare.refill();
    let listener = Bounded { listener, room, spare, open: VecDeque::new() };
    // It ends only with the process.
    let _ = axum::serve(listener, pages).await;
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    match admin.obstacle() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {obstacle}\n")),
    }
}

async fn status(State(admin): State<Admin>) -> Json<Value> {
    let (hub, report) = (&admin.hub, admin.published.read());
    let (counters, limits) = (&hub.counters, &hub.limits);
    let cluster = admin.cluster.as_ref().map(Cluster::status);
    let domain = hub.view.borrow().domain;
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": if admin.has_peers { "cluster" } else { "single" },
        "ready": admin.obstacle().is_none(),
        "obstacle": admin.obstacle(),
        "uptime_seconds": admin.started.elapsed().as_secs(),
        "domain": domain.map(|domain| domain.to_string()),
        "cluster": cluster,
        "connections": {
            "open": counters.connections.get(),
            "unauthenticated": counters.unauthenticated.get(),
            "max": limits.connections,
            "max_unauthenticated": limits.unauthenticated,
        },
        "locks": { "held": report.engine.held, "max_held": limits.engine.held },
        "waiters": {
            "waiting": report.engine.waiters,
            "max": limits.engine.waiters,
            "max_per_key": limits.engine.waiters_per_key,
        },
        "tombstones": { "standing": report.engine.tombstones, "max": limits.engine.tombstones },
        // As text: JSON readers lose digits of such numbers.
        "next_token": report.next_token.to_string(),
    }))
}

/// What a page of another site cannot make a browser send.
pub const OPERATOR_HEADER: &str = "ticketing-operator";

async fn replace(
    State(admin): State<Admin>,
    Path(slot): Path<String>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if !headers.contains_key(OPERATOR_HEADER) {
        return (StatusCode::FORBIDDEN, format!("the header {OPERATOR_HEADER} is missing\n"));
    }
    let Some(cluster) = &admin.cluster else {
        return (StatusCode::CONFLICT, "this server is in no cluster\n".to_owned());
    };
    match cluster.allow_replacement(&slot).await {
        Ok(()) => (StatusCode::OK, String::new()),
        Err(problem) => (StatusCode::CONFLICT, format!("{problem}\n")),
    }
}

async fn metrics_page(State(admin): State<Admin>) -> impl IntoResponse {
    // Not on a thread that serves clients.
    let page = spawn_blocking(move || {
        let status = admin.cluster.as_ref().map(Cluster::status);
        metrics::render(&admin.hub, &admin.published.read(), status.as_ref())
    });
    match page.await {
        Ok(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A descriptor that is given up when there is no other one for a connection: a server
/// whose clients have taken all of them can still be watched.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Option<File>>>);

impl Spare {
    /// Whether there was one to be given up.
    fn give_up(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    fn refill(&self) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            // Where there is no such file, there is no spare descriptor.
            *file = File::open("/dev/null").ok();
        }
    }
}

/// Refills the spare descriptor with that of a connection that ends.
struct Refill(Spare);

impl Drop for Refill {
    fn drop(&mut self) {
        self.0.refill();
    }
}

/// A listener that takes no more than so many connections at a time.
struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
    spare: Spare,
    /// Those that are open, the oldest first: since when, and how to cut them.
    open: VecDeque<(Instant, oneshot::Sender<()>)>,
}

impl Bounded {
    /// A place, if need be the oldest connection's.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.open.retain(|(_, cut)| !cut.is_closed());
        let oldest = self.open.front().map_or_else(Instant::now, |(since, _)| *since);
        let room = Arc::clone(&self.room).acquire_owned();
        // Nobody closes the semaphore.
        match timeout_at(oldest + LEAST_TIME, room).await {
            Ok(place) => place.ok(),
            Err(_) => {
                if let Some((_, cut)) = self.open.pop_front() {
                    // It may have ended by itself.
                    let _ = cut.send(());
                }
                Arc::clone(&self.room).acquire_owned().await.ok()
            }
        }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Brief;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Brief, SocketAddr) {
        let (tcp, peer) = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                Err(_) if self.spare.give_up() => {}
                Err(_) => sleep(RETRY).await,
            }
        };
        let place = self.place().await;
        let (cut, is_cut) = oneshot::channel();
        self.open.push_back((Instant::now(), cut));
        (
            Brief {
                tcp,
                end: Box::pin(sleep(LONGEST_TIME)),
                is_cut,
                _refill: Refill(self.spare.clone()),
                _place: place,
            },
            peer,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection whose time is limited.
struct Brief {
    // Closed before the spare descriptor is refilled.
    tcp: TcpStream,
    _refill: Refill,
    end: Pin<Box<Sleep>>,
    is_cut: oneshot::Receiver<()>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Brief {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let is_over = self.end.as_mut().poll(cx).is_ready() || Pin::new(&mut self.is_cut).poll(cx).is_ready();
        if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Brief {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Brief {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
