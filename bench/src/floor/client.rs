//! The echo client: tasks that share connections through a channel, a
//! coalescing writer and oneshots, as the product's client does.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use slab::Slab;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::{ACQUIRE, Exchange, RELEASE, encode, head};
use crate::figures::{Figures, Latencies};

/// As many as the product's client has to a single address.
const CONNECTIONS: usize = 2;
const BUFFER_BYTES: usize = 64 * 1024;
const QUEUED_REQUESTS: usize = 1024;

struct Request {
    exchange: Exchange,
    done: oneshot::Sender<()>,
}

type Connection = mpsc::Sender<Request>;

/// Runs `cycles` cycles in all, `tasks` at a time.
pub(crate) async fn run(address: SocketAddr, tasks: u64, cycles: u64) -> Result<Figures> {
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (requests, queue) = mpsc::channel(QUEUED_REQUESTS);
        tokio::spawn(drive(stream, queue));
        connections.push(requests);
    }
    let started = Instant::now();
    let shares = (0..tasks).map(|task| cycles / tasks + u64::from(task < cycles % tasks));
    let tasks: Vec<_> = shares
        .enumerate()
        .map(|(task, share)| tokio::spawn(repeat(connections.clone(), task, share)))
        .collect();
    let mut latencies = Latencies::new()?;
    for task in tasks {
        latencies.add(&task.await??)?;
    }
    Ok(latencies.figures(started.elapsed()))
}

async fn repeat(connections: Vec<Connection>, task: usize, cycles: u64) -> Result<Latencies> {
    let mut latencies = Latencies::new()?;
    // Round-robin, as the product spreads its acquires; a release goes where its acquire went.
    for connection in connections.iter().cycle().skip(task % CONNECTIONS).take(usize::try_from(cycles)?) {
        let started = Instant::now();
        round_trip(connection, ACQUIRE).await?;
        round_trip(connection, RELEASE).await?;
        latencies.record(started.elapsed())?;
    }
    Ok(latencies)
}

async fn round_trip(connection: &Connection, exchange: Exchange) -> Result<()> {
    let (done, answer) = oneshot::channel();
    connection.send(Request { exchange, done }).await.ok().context("the connection ended")?;
    answer.await.context("the connection ended")
}

/// Owns a socket until its server or all its users are gone.
async fn drive(mut stream: TcpStream, mut queue: mpsc::Receiver<Request>) -> io::Result<()> {
    let mut pending = Slab::new();
    let mut requests = Vec::with_capacity(QUEUED_REQUESTS);
    let mut input = Vec::with_capacity(BUFFER_BYTES);
    let mut output = Vec::with_capacity(BUFFER_BYTES);
    loop {
        tokio::select! {
            taken = queue.recv_many(&mut requests, QUEUED_REQUESTS) => {
                if taken == 0 {
                    return Ok(());
                }
                for Request { exchange, done } in requests.drain(..) {
                    encode(exchange.op, pending.insert(done) as u64, exchange.request_bytes, &mut output);
                }
                stream.write_all(&output).await?;
                output.clear();
            }
            received = stream.read_buf(&mut input) => {
                if received? == 0 {
                    return Ok(());
                }
                let used = complete(&input, &mut pending)?;
                input.drain(..used);
            }
        }
    }
}

/// Completes the request of every complete answer and says how many bytes they had.
fn complete(input: &[u8], pending: &mut Slab<oneshot::Sender<()>>) -> io::Result<usize> {
    let mut rest = input;
    while let Some((exchange, id)) = head(rest)? {
        let Some((_, after)) = rest.split_at_checked(exchange.answer_bytes) else { break };
        let done = usize::try_from(id).ok().and_then(|id| pending.try_remove(id));
        let done = done.ok_or_else(|| io::Error::other(format!("an answer to nothing: {id}")))?;
        // Nobody gives a round trip up.
        let _ = done.send(());
        rest = after;
    }
    Ok(input.len() - rest.len())
}
