//! A TCP proxy that can hold bytes back, let them come late, or end a connection after
//! a given one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Place;

/// Chunks of a direction that are on their way at most; more are left to TCP.
const ON_THE_WAY: usize = 256;

/// A direction through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From whoever connected.
    There,
    /// To whoever connected.
    Back,
}

/// What happens to bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    stalled: bool,
    delay: Duration,
    jitter: Duration,
    /// The connection ends when this many bytes of the direction have passed in all.
    cut_at: Option<u64>,
}

/// One direction, over all connections.
#[derive(Debug)]
struct Lane {
    weather: watch::Sender<Weather>,
    passed: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    there: Lane,
    back: Lane,
    /// Counts up whenever all connections must end.
    cuts: watch::Sender<u64>,
    refuses: watch::Sender<bool>,
}

impl Shared {
    const fn lane(&self, way: Way) -> &Lane {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }
}

/// Passes connections on to another address; ends with its connections when dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _running: oneshot::Sender<()>,
}

impl Proxy {
    /// Listens in this place (port 0: any), and passes connections on from there.
    ///
    /// # Panics
    /// If it cannot listen there.
    #[must_use]
    pub fn start(listen: SocketAddr, target: SocketAddr, place: &Place) -> Self {
        let lane = || Lane { weather: watch::Sender::default(), passed: AtomicU64::new(0) };
        let (cuts, refuses) = (watch::Sender::default(), watch::Sender::default());
        let shared = Arc::new(Shared { target, there: lane(), back: lane(), cuts, refuses });
        let (running, stop) = oneshot::channel();
        let (ready, addr) = std::sync::mpsc::channel();
        let (place, served) = (place.clone(), Arc::clone(&shared));
        std::thread::spawn(move || {
            place.enter();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let _ = runtime.block_on(async {
                let listener = match TcpListener::bind(listen).await {
                    Ok(listener) => listener,
                    Err(error) => return ready.send(Err(error)),
                };
                let told = ready.send(listener.local_addr());
                tokio::select! {
                    () = accept(listener, served) => {}
                    _ = stop => {}
                }
                told
            });
        });
        let addr =
            addr.recv().expect("the proxy's thread").unwrap_or_else(|error| panic!("{listen}: {error}"));
        Self { addr, shared, _running: running }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Holds the bytes of a direction back, or lets them go on; nobody is told.
    pub fn stall(&self, way: Way, stalled: bool) {
        self.shared
            .lane(way)
            .weather
            .send_if_modified(|weather| std::mem::replace(&mut weather.stalled, stalled) != stalled);
    }

    /// Lets what comes from now on arrive later, by `delay` and up to `jitter` more, in order.
    pub fn delay(&self, way: Way, delay: Duration, jitter: Duration) {
        self.shared
            .lane(way)
            .weather
            .send_modify(|weather| (weather.delay, weather.jitter) = (delay, jitter));
    }

    /// Ends, in the middle of whatever it is, the connection whose byte is the next but
    /// `bytes` of that direction. That byte is not passed on.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        let lane = self.shared.lane(way);
        let cut_at = Some(lane.passed.load(Ordering::Relaxed) + bytes);
        lane.weather.send_modify(|weather| weather.cut_at = cut_at);
    }

    /// Ends all connections now.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends new connections at once, or serves them again.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.send_replace(refuses);
    }

    /// How many bytes of a direction have been passed on.
    #[must_use]
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.lane(way).passed.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((near, _)) if !*shared.refuses.borrow() => {
                tokio::spawn(connection(near, Arc::clone(&shared)));
            }
            Ok(_) => {}
            // Out of descriptors, for instance: it may pass.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(near: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let serve = async {
        let far = TcpStream::connect(shared.target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::try_join!(pass(near_read, far_write, &shared.there), pass(far_read, near_write, &shared.back))
    };
    // Both ends see that it is over, however it ended.
    tokio::select! {
        _ = serve => {}
        _ = cuts.changed() => {}
    }
}

/// A piece of the stream, and when it arrives.
type Chunk = (Instant, Vec<u8>);

/// Passes one direction of a connection on until its end, which is passed on too.
async fn pass(read: OwnedReadHalf, write: OwnedWriteHalf, lane: &Lane) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    tokio::try_join!(take_in(read, sender, lane), give_out(write, receiver, lane)).map(drop)
}

async fn take_in(mut read: OwnedReadHalf, sender: mpsc::Sender<Chunk>, lane: &Lane) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut latest = Instant::now();
    loop {
        let length = read.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let Weather { delay, jitter, .. } = *lane.weather.borrow();
        latest = latest.max(Instant::now() + delay + jitter.mul_f64(rand::rng().random()));
        if sender.send((latest, buffer[..length].to_vec())).await.is_err() {
            return Ok(());
        }
    }
}

async fn give_out(
    mut write: OwnedWriteHalf,
    mut receiver: mpsc::Receiver<Chunk>,
    lane: &Lane,
) -> io::Result<()> {
    let mut weather = lane.weather.subscribe();
    while let Some((arrives, chunk)) = receiver.recv().await {
        tokio::time::sleep_until(arrives).await;
        let Ok(now) = weather.wait_for(|weather| !weather.stalled).await.map(|weather| *weather) else {
            return Ok(());
        };
        let length = chunk.len() as u64;
        let before = lane.passed.fetch_add(length, Ordering::Relaxed);
        let cut_at = now.cut_at.filter(|&cut_at| cut_at < before + length);
        let passes = cut_at.map_or(length, |cut_at| cut_at.saturating_sub(before));
        write.write_all(&chunk[..usize::try_from(passes).expect("part of a chunk")]).await?;
        if let Some(cut_at) = cut_at {
            lane.weather.send_if_modified(|weather| {
                weather.cut_at = weather.cut_at.filter(|&next| next != cut_at);
                false
            });
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
    write.shutdown().await
}
