//! Nodes that do what the tests ask them to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use ticketing_peer::{
    Call, CallResult, ClusterId, Config, Handler, Limits, Link, Party, Peer, Refusal, Reply, Secret, Service,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::logs;

pub(crate) const SECRET: &[u8] = b"the secret of the test cluster";
pub(crate) const CLUSTER: ClusterId = ClusterId([0x5a; 16]);
pub(crate) const ONE: Party = Party { cluster: CLUSTER, node: 1 };
pub(crate) const TWO: Party = Party { cluster: CLUSTER, node: 2 };
pub(crate) const THREE: Party = Party { cluster: CLUSTER, node: 3 };

/// The answer is the body.
pub(crate) const ECHO: u8 = 1;
/// No answer, until the test gives one.
pub(crate) const HOLD: u8 = 2;
/// It fails, and says the body.
pub(crate) const FAIL: u8 = 3;
/// It is dropped.
pub(crate) const DROP: u8 = 4;
/// The answer has as many bytes as the body says (u32 LE).
pub(crate) const SIZED: u8 = 5;
/// The answer comes after as many milliseconds as the body says (u32 LE).
pub(crate) const SLOW: u8 = 6;

pub(crate) fn config() -> Config {
    Config { secret: Secret::new(SECRET).unwrap(), tls: None, limits: Limits::default() }
}

pub(crate) fn limited(limits: Limits) -> Config {
    Config { limits, ..config() }
}

/// Far enough away on any machine.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

pub(crate) fn within(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

/// What must come to an end by itself, long before this gives up.
pub(crate) async fn settled<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what).await.expect("an end that does not come")
}

/// Waits for a condition; the limit is for a test that would hang.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = soon();
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// What a node knows of itself and of those who talk to it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) me: Mutex<Party>,
    pub(crate) refusal: Mutex<Option<Refusal>>,
    pub(crate) links: Mutex<Vec<Link>>,
    pub(crate) open: AtomicUsize,
    pub(crate) bodies: Mutex<Vec<Bytes>>,
    pub(crate) held: Mutex<Vec<Reply>>,
}

impl State {
    pub(crate) fn links(&self) -> usize {
        self.links.lock().unwrap().len()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}

struct Answers(Arc<State>);

impl Service for Answers {
    fn me(&self) -> Party {
        *self.0.me.lock().unwrap()
    }

    fn admit(&self, _: Party, _: Party) -> Result<(), Refusal> {
        self.0.refusal.lock().unwrap().map_or(Ok(()), Err)
    }

    fn connected(&self, link: Link) -> Box<dyn Handler> {
        self.0.links.lock().unwrap().push(link);
        self.0.open.fetch_add(1, Ordering::SeqCst);
        Box::new(Connection(Arc::clone(&self.0)))
    }
}

struct Connection(Arc<State>);

impl Handler for Connection {
    fn call(&mut self, call: Call) {
        let Call { kind, mut body, reply } = call;
        self.0.bodies.lock().unwrap().push(body.clone());
        match kind {
            ECHO => reply.send(body),
            HOLD => self.0.held.lock().unwrap().push(reply),
            FAIL => reply.fail(std::str::from_utf8(&body).unwrap()),
            DROP => drop(reply),
            SIZED => reply.send(vec![7; body.get_u32_le() as usize]),
            SLOW => {
                tokio::spawn(async move {
                    sleep(Duration::from_millis(body.clone().get_u32_le().into())).await;
                    reply.send(body);
                });
            }
            kind => reply.fail(&format!("what is {kind}?")),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A node that listens.
pub(crate) struct Node {
    pub(crate) at: SocketAddr,
    pub(crate) state: Arc<State>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Node {
    /// Node 2, at a port that the system chooses.
    pub(crate) async fn start(config: Config) -> Self {
        Self::listen(TWO, config, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn listen(me: Party, config: Config, listener: TcpListener) -> Self {
        logs::listen();
        let state = Arc::new(State { me: Mutex::new(me), ..State::default() });
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let service = Arc::new(Answers(Arc::clone(&state)));
        let serving = ticketing_peer::serve(listener, service, config, async {
            let _ = stopped.await;
        });
        Self { at, state, stop, serving: tokio::spawn(serving) }
    }

    /// Node 1 calls node 2 there.
    pub(crate) fn peer(&self, config: Config) -> Peer {
        peer_at(self.at, config)
    }

    /// Stops, and returns once nothing is left of it but its state.
    pub(crate) async fn stop(self) -> Arc<State> {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
        self.state
    }
}

pub(crate) fn peer_at(at: SocketAddr, config: Config) -> Peer {
    logs::listen();
    Peer::new(at.to_string(), ONE, TWO, config)
}

pub(crate) async fn echo(peer: &Peer, body: &'static str) -> CallResult {
    settled(peer.call(ECHO, body, soon())).await
}

/// A port where nothing listens, and where something may listen later.
pub(crate) fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
