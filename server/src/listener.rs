//! The accept loop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ticketing_protocol::{Reason, ServerFrame};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::connection::{Newcomer, serve};
use crate::hub::{Hub, Refused};

/// Connections that the system may hold for us between two turns of the loop.
const BACKLOG: u32 = 4096;

/// Pause after an accept that failed: as a rule descriptors have run out, and
/// the connection is still there to be accepted when one is free.
const RETRY: Duration = Duration::from_millis(100);

/// Binds `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart does not wait for the connections of the last run to fade away.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections for ever.
pub(crate) async fn run(listener: TcpListener, hub: Arc<Hub>) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                if failing {
                    info!("connections can be accepted again");
                    failing = false;
                }
                take(tcp, peer, &hub);
            }
            // The client gave up before its turn came.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                hub.counters.accept_failures.add(1);
                if !failing {
                    warn!(%error, "no connection can be accepted; those that are open go on (is the limit of open files too low?)");
                    failing = true;
                }
                sleep(RETRY).await;
            }
        }
    }
}

fn take(tcp: TcpStream, peer: SocketAddr, hub: &Arc<Hub>) {
    let (counters, limits) = (&hub.counters, &hub.limits);
    counters.accepted.add(1);
    if counters.connections.get() >= limits.connections.into()
        || counters.unauthenticated.get() >= limits.unauthenticated.into()
    {
        counters.errors(Reason::TooManyConnections).add(1);
        if hub.may_log(Refused::TooMany) {
            warn!(%peer, "a connection more than the limits allow was turned away");
        }
        turn_away(tcp, hub);
        return;
    }
    let newcomer = Newcomer {
        peer,
        accepted: Instant::now(),
        slot: counters.count(|counters| &counters.connections),
        waiting: counters.count(|counters| &counters.unauthenticated),
    };
    tokio::spawn(serve(tcp, newcomer, Arc::clone(hub)));
}

/// Costs no task and no memory. A client under TLS could not read the reason.
fn turn_away(tcp: TcpStream, hub: &Hub) {
    if hub.credentials.current().tls.is_some() {
        return;
    }
    let mut frame = Vec::new();
    ServerFrame::Error { reason: Reason::TooManyConnections.as_str() }.encode(&mut frame);
    if let Ok(tcp) = tcp.into_std() {
        // There is room in the buffer of a new socket; and if not, it is closed all the same.
        let _ = io::Write::write(&mut &tcp, &frame);
    }
}
