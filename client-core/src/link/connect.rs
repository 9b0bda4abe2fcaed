//! From an address to an open session: names, TCP, TLS, handshake, in 5 s.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::Greeted;
use super::handshake::handshake;
use crate::address::Address;
use crate::tls::{Tls, Unverified};
use crate::trouble::{Stage, Trouble};
use crate::{Domain, Token};

/// For connect, TLS and handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer that vanished without a word is noticed within about 10 s.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_PROBES: u32 = 3;
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// What every connection of a broker needs.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) token: Token,
    pub(crate) tls: Option<Tls>,
    pub(crate) expected_domain: Option<Domain>,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Opens a session, and shows how far it has come. Gives back what the server
/// said of itself, and the bytes that it sent behind the handshake.
///
/// # Errors
/// Why no session is open.
pub(crate) async fn connect(
    config: &Config,
    address: &Address,
    stage: &watch::Sender<Stage>,
) -> Result<(Stream, Greeted, Vec<u8>), Trouble> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let opening = async {
        let tcp = dial(address, deadline).await?;
        let Some(tls) = &config.tls else {
            let mut tcp = tcp;
            let (greeted, rest) = handshake(&mut tcp, &config.token, config.expected_domain, stage).await?;
            return Ok((Stream::Plain(tcp), greeted, rest));
        };
        stage.send_replace(Stage::Tls);
        let mut stream = Box::new(tls.connect(&address.host, tcp).await.map_err(tls_trouble)?);
        let (greeted, rest) = handshake(&mut *stream, &config.token, config.expected_domain, stage).await?;
        Ok((Stream::Tls(stream), greeted, rest))
    };
    match timeout_at(deadline, opening).await {
        Ok(outcome) => outcome,
        Err(_late) => Err(Trouble::Late(*stage.borrow())),
    }
}

/// Tries the addresses of a name one after the other, each for its share of the
/// time: one that swallows packets must not hide the next.
async fn dial(address: &Address, deadline: Instant) -> Result<TcpStream, Trouble> {
    let resolved = tokio::net::lookup_host((&*address.host, address.port)).await.map_err(Trouble::Resolve)?;
    let candidates = resolved.collect::<Vec<SocketAddr>>();
    let mut last = Trouble::NoAddress;
    for (tried, candidate) in candidates.iter().enumerate() {
        let left = u32::try_from(candidates.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        match timeout(share, TcpStream::connect(candidate)).await {
            Ok(Ok(socket)) => {
                tune(&socket).map_err(Trouble::Connect)?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = Trouble::Connect(error),
            Err(_late) => last = Trouble::Late(Stage::Connection),
        }
    }
    Err(last)
}

fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_IDLE)
        .with_interval(KEEP_ALIVE_INTERVAL)
        .with_retries(KEEP_ALIVE_PROBES);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

/// A certificate or a protocol that is wrong stays wrong; a connection that
/// broke during the handshake may be better next time.
fn tls_trouble(error: io::Error) -> Trouble {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(refused) = refused {
        Trouble::Tls(io::Error::new(error.kind(), Unverified(refused.clone())))
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        Trouble::ClosedBefore(Stage::Tls)
    } else {
        Trouble::Io(error)
    }
}
