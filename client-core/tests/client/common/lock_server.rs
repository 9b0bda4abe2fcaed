//! A small lock server in one thread of its own: FIFO queues, tokens, leases
//! and extension 1, with counts of everything that it gave and got back.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ticketing_protocol::handshake::{Domain, Greeting, Response};
use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key, ServerFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

const NONCE: &str = "BBBBBBBBBBBBBBBBBBBBBB";
pub(crate) const DOMAIN: Domain = Domain([7; 16]);

/// A running server; it ends with this value.
pub(crate) struct LockServer {
    pub(crate) address: String,
    table: Arc<Mutex<Table>>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// How the server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) extension: bool,
    pub(crate) token: &'static str,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { extension: true, token: "" }
    }
}

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) acquires: usize,
    pub(crate) granted: usize,
    /// Releases that ended a lock, and those that came too late.
    pub(crate) released: usize,
    pub(crate) not_held: usize,
    pub(crate) held: usize,
    pub(crate) waiting: usize,
    pub(crate) connections: usize,
}

#[derive(Default)]
struct Table {
    locks: HashMap<String, Lock>,
    last_token: u64,
    counts: Counts,
}

#[derive(Default)]
struct Lock {
    holder: Option<(u64, u64)>,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    owner: u64,
    lease: u8,
    came: Instant,
    wire: Wire,
}

/// The way to one client.
#[derive(Clone)]
struct Wire {
    id: u64,
    extension: bool,
    bytes: UnboundedSender<Vec<u8>>,
}

impl Wire {
    fn send(&self, frame: ServerFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let _ = self.bytes.send(bytes);
    }
}

type Shared = Arc<Mutex<Table>>;

impl LockServer {
    pub(crate) fn start() -> Self {
        Self::with(Behaviour::default())
    }

    pub(crate) fn with(behaviour: Behaviour) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let table = Shared::default();
        let shared = Arc::clone(&table);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap().to_string();
                tell.send(address.clone()).unwrap();
                tokio::select! {
                    _ = stopped => {}
                    () = listen(listener, address, behaviour, shared) => {}
                }
            });
        });
        Self { address: told.recv().unwrap(), table, _stop: stop }
    }

    pub(crate) fn counts(&self) -> Counts {
        let table = self.table.lock().unwrap();
        let held = table.locks.values().filter(|lock| lock.holder.is_some()).count();
        let waiting = table.locks.values().map(|lock| lock.queue.len()).sum();
        Counts { held, waiting, ..table.counts.clone() }
    }

    /// Nothing is held and nobody waits: no orphan was left behind.
    pub(crate) fn is_clean(&self) -> bool {
        let counts = self.counts();
        counts.held == 0 && counts.waiting == 0
    }
}

async fn listen(listener: TcpListener, address: String, behaviour: Behaviour, shared: Shared) {
    let ids = AtomicU64::new(1);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let id = ids.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(stream, id, address.clone(), behaviour, Arc::clone(&shared)));
    }
}

async fn serve(mut stream: TcpStream, id: u64, address: String, behaviour: Behaviour, shared: Shared) {
    stream.set_nodelay(true).unwrap();
    let Some(extension) = shake_hands(&mut stream, &address, behaviour).await else { return };
    shared.lock().unwrap().counts.connections += 1;
    let (mut reader, mut writer) = stream.into_split();
    let (bytes, mut out) = unbounded_channel::<Vec<u8>>();
    let wire = Wire { id, extension, bytes };
    wire.send(ServerFrame::Leader { address: &address });
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while out.recv_many(&mut batch, 1024).await > 0 {
            if writer.write_all(&batch.concat()).await.is_err() {
                return;
            }
            batch.clear();
        }
    });
    let mut decoder = Decoder::<ClientToServer>::new(if extension { Extension::On } else { Extension::Off });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        let decoded = decoder.feed(&buffer[..count], |frame| handle(frame, &wire, &shared));
        if decoded.is_err() {
            break;
        }
    }
    // Waiters of a connection that ended leave.
    let mut table = shared.lock().unwrap();
    table.counts.connections -= 1;
    for lock in table.locks.values_mut() {
        lock.queue.retain(|waiter| waiter.wire.id != id);
    }
}

/// Whether the client speaks the extension; `None`: refused.
async fn shake_hands(stream: &mut TcpStream, address: &str, behaviour: Behaviour) -> Option<bool> {
    let greeting = Greeting {
        domain: Some(DOMAIN),
        node: Some(1),
        own_address: Some(address),
        extension: behaviour.extension,
        nonce: NONCE,
    };
    let mut line = Vec::new();
    greeting.encode(&mut line);
    stream.write_all(&line).await.ok()?;
    let mut response = Vec::new();
    loop {
        match stream.read_u8().await.ok()? {
            b'\n' => break,
            byte => response.push(byte),
        }
    }
    let response = Response::parse(&response).ok()?;
    if !response.proves(behaviour.token.as_bytes(), NONCE) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let _ = stream.write_all(b"Eauth_failed\n").await;
        return None;
    }
    Some(response.extension)
}

fn handle(frame: ClientFrame<'_>, wire: &Wire, shared: &Shared) {
    let mut table = shared.lock().unwrap();
    let table = &mut *table;
    match frame {
        ClientFrame::Acquire { wait, lease, owner, key } => {
            table.counts.acquires += 1;
            let lock = table.locks.entry(key.as_str().to_owned()).or_default();
            let waiter = Waiter { owner, lease, came: Instant::now(), wire: wire.clone() };
            if lock.holder.is_none() {
                grant(table, key, waiter, shared);
            } else if wait == 0 {
                wire.send(ServerFrame::TimedOut { owner, key });
            } else {
                lock.queue.push_back(waiter);
                let (shared, name) = (Arc::clone(shared), key.as_str().to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(wait.into())).await;
                    let key = Key::new(&name).unwrap();
                    if let Some(waiter) = leave(&mut shared.lock().unwrap(), &name, owner) {
                        waiter.wire.send(ServerFrame::TimedOut { owner, key });
                    }
                });
            }
        }
        ClientFrame::Release { token, key } => {
            if end(table, key, token, shared) {
                table.counts.released += 1;
                wire.send(ServerFrame::Released { token, key });
            } else {
                table.counts.not_held += 1;
                wire.send(ServerFrame::NotHeld { token, key });
            }
        }
        ClientFrame::Cancel { owner, key } => {
            if let Some(waiter) = leave(table, key.as_str(), owner) {
                waiter.wire.send(ServerFrame::Busy { owner, key });
            }
        }
        ClientFrame::Place { owner, key } => {
            let queue = table.locks.get(key.as_str()).map(|lock| &lock.queue);
            let place = queue.and_then(|queue| queue.iter().position(|waiter| waiter.owner == owner));
            let number = |count: usize| u32::try_from(count).unwrap();
            let (place, waiters) =
                (place.map_or(0, |at| number(at + 1)), queue.map_or(0, |queue| number(queue.len())));
            wire.send(ServerFrame::Place { owner, place, waiters, key });
        }
        ClientFrame::Verify { owner, key } => {
            if let Some(waiter) = leave(table, key.as_str(), owner) {
                waiter.wire.send(ServerFrame::Busy { owner, key });
            }
            match table.locks.get(key.as_str()).and_then(|lock| lock.holder) {
                Some((token, holder)) if holder == owner => {
                    wire.send(ServerFrame::GrantedUntil { token, owner, ends_ms: 0, key });
                }
                _ => wire.send(ServerFrame::Busy { owner, key }),
            }
        }
    }
}

fn leave(table: &mut Table, key: &str, owner: u64) -> Option<Waiter> {
    let queue = &mut table.locks.get_mut(key)?.queue;
    let at = queue.iter().position(|waiter| waiter.owner == owner)?;
    queue.remove(at)
}

fn grant(table: &mut Table, key: Key<'_>, waiter: Waiter, shared: &Shared) {
    let Waiter { owner, lease, came, wire } = waiter;
    table.last_token += 1;
    table.counts.granted += 1;
    let token = table.last_token;
    let name = key.as_str().to_owned();
    table.locks.entry(name.clone()).or_default().holder = Some((token, owner));
    let lease = Duration::from_secs(lease.into());
    if wire.extension {
        let ends_ms = u32::try_from((came.elapsed() + lease).as_millis()).unwrap();
        wire.send(ServerFrame::GrantedUntil { token, owner, ends_ms, key });
    } else {
        wire.send(ServerFrame::Granted { token, owner, key });
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        tokio::time::sleep(lease).await;
        end(&mut shared.lock().unwrap(), Key::new(&name).unwrap(), token, &shared);
    });
}

/// Ends a lock if it is held under that token, and hands it on.
fn end(table: &mut Table, key: Key<'_>, token: u64, shared: &Shared) -> bool {
    let Some(lock) = table.locks.get_mut(key.as_str()) else { return false };
    if lock.holder.is_none_or(|(current, _)| current != token) {
        return false;
    }
    lock.holder = None;
    match lock.queue.pop_front() {
        Some(next) => grant(table, key, next, shared),
        None => drop(table.locks.remove(key.as_str())),
    }
    true
}
