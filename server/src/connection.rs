//! The life of a connection: TLS, handshake, session. Each has its own task, so
//! that nothing that a client does or leaves undone holds the accept loop up.

use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};
use ticketing_protocol::Reason;
use ticketing_protocol::limits::{HANDSHAKE_TIMEOUT, REFUSAL_DELAY};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::conn::Conn;
use crate::counters::Counted;
use crate::farewell::refuse;
use crate::handshake::{Admitted, Refused, admit};
use crate::hub::{self, Current, Hub, Phase};
use crate::session::Session;

/// A connection that was accepted and does not know anything yet.
pub(crate) struct Newcomer {
    pub(crate) peer: SocketAddr,
    pub(crate) accepted: Instant,
    /// Its place among all connections.
    pub(crate) slot: Counted,
    /// Its place among those that have not authenticated yet.
    pub(crate) waiting: Counted,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(tcp: TcpStream, newcomer: Newcomer, hub: Arc<Hub>) {
    if let Err(error) = tune(&tcp) {
        debug!(peer = %newcomer.peer, %error, "the connection ended before it began");
        return;
    }
    let Ok(local) = tcp.local_addr() else { return };
    let own_address = hub.advertise.clone().unwrap_or_else(|| local.to_string());
    let current = hub.credentials.current();
    let Some(tls) = current.tls.clone() else {
        // In boxes, so that a plain connection does not pay for the memory of one under TLS.
        return Box::pin(converse(tcp, newcomer, hub, current, own_address)).await;
    };
    let handshake = Box::pin(TlsAcceptor::from(tls).accept(tcp));
    let problem = match timeout_at(newcomer.accepted + HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => return Box::pin(converse(stream, newcomer, hub, current, own_address)).await,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    hub.counters.tls_failures.add(1);
    if hub.may_log(hub::Refused::Tls) {
        warn!(peer = %newcomer.peer, problem, "a TLS handshake failed (a client without TLS, or one that does not trust the certificate?)");
    }
}

/// Bytes that the system takes from us before it has sent them: what it has
/// taken cannot be taken back, and a client that reads slowly shows that it reads.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 64 * 1024;

/// A peer that vanished without a word is noticed within about 10 seconds.
fn tune(tcp: &TcpStream) -> std::io::Result<()> {
    use std::time::Duration;

    let socket = SockRef::from(tcp);
    socket.set_tcp_nodelay(true)?;
    let keep_alive =
        TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
    #[cfg(not(target_os = "windows"))]
    let keep_alive = keep_alive.with_retries(3);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    }
    Ok(())
}

/// Why a client is refused, and after what pause.
enum Refusal {
    AtOnce(Reason),
    AfterAPause(Reason),
    /// After a pause too; with what is worth a line in the log.
    Unproved(hub::Refused, &'static str),
    /// There is nobody to refuse.
    Gone,
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    newcomer: Newcomer,
    hub: Arc<Hub>,
    current: Current,
    own_address: String,
) {
    let Newcomer { peer, accepted, slot, waiting } = newcomer;
    let (reason, pause) = match welcome(&mut stream, &hub, &current, &own_address, accepted).await {
        Ok(admitted) => {
            drop((waiting, current));
            hub.counters.authenticated.add(1);
            let conn = Arc::new(Conn::new(hub.next_conn(), admitted.extension));
            debug!(%peer, conn = conn.id.0, extension = ?admitted.extension, "a session begins");
            let stopping = reached(&hub, Phase::Ending);
            let session = Session::new(stream, conn, Arc::clone(&hub), own_address);
            session.run(admitted.pipelined, stopping).await;
            debug!(%peer, "a session ended");
            drop(slot);
            return;
        }
        Err(Refusal::Gone) => return,
        Err(Refusal::AtOnce(reason)) => (reason, false),
        Err(Refusal::AfterAPause(reason)) => (reason, true),
        Err(Refusal::Unproved(sort, what)) => {
            if hub.may_log(sort) {
                warn!(%peer, "{what} (more such lines are left out for a while)");
            }
            (Reason::AuthFailed, true)
        }
    };
    if pause {
        // Published clients come back without a pause.
        sleep(REFUSAL_DELAY).await;
    }
    // What is left to do for it keeps nobody out who could authenticate.
    drop(waiting);
    hub.counters.errors(reason).add(1);
    refuse(stream, reason).await;
}

/// The handshake, if the server takes clients at all.
async fn welcome<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    hub: &Hub,
    current: &Current,
    own_address: &str,
    accepted: Instant,
) -> Result<Admitted, Refusal> {
    if *hub.phase.borrow() >= Phase::Draining {
        return Err(Refusal::AtOnce(Reason::ShuttingDown));
    }
    let domain = hub.view.borrow().domain;
    let deadline = accepted + HANDSHAKE_TIMEOUT;
    let admitted = tokio::select! {
        biased;
        admitted = admit(stream, domain, own_address, &current.tokens, deadline) => admitted,
        () = reached(hub, Phase::Ending) => return Err(Refusal::AtOnce(Reason::ShuttingDown)),
    };
    match admitted {
        Ok(_) if *hub.phase.borrow() == Phase::Grace => Err(Refusal::AfterAPause(Reason::NotActive)),
        // It takes part in nothing, or in something else than a moment ago.
        Ok(_) if domain.is_none() || hub.view.borrow().domain != domain => {
            Err(Refusal::AfterAPause(Reason::NotActive))
        }
        Ok(admitted) => Ok(admitted),
        Err(Refused::Wrong) if current.tokens.are_needed() => Err(Refusal::Unproved(
            hub::Refused::Unproved,
            "a client did not prove that it knows the client token",
        )),
        Err(Refused::Wrong) => Err(Refusal::Unproved(
            hub::Refused::Unproved,
            "the handshake of a client was wrong (has it a client token? this server asks for none)",
        )),
        Err(Refused::Late) => {
            Err(Refusal::Unproved(hub::Refused::Silent, "a client did not answer the greeting in time"))
        }
        Err(Refused::Gone) => Err(Refusal::Gone),
    }
}

/// Waits until the server is in this phase.
fn reached(hub: &Hub, phase: Phase) -> impl Future<Output = ()> + use<> {
    let mut phases = hub.phase.subscribe();
    async move {
        // If nobody can change the phase any more, the process is ending anyway.
        let _ = phases.wait_for(|&now| now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::testing::hub;

    fn newcomer(hub: &Arc<Hub>) -> Newcomer {
        Newcomer {
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            accepted: Instant::now(),
            slot: hub.counters.count(|counters| &counters.connections),
            waiting: hub.counters.count(|counters| &counters.unauthenticated),
        }
    }

    /// A client of a server in this phase.
    fn client(phase: Phase) -> (DuplexStream, Arc<Hub>) {
        let (hub, inbox) = hub();
        // The driver of these tests listens and does nothing.
        tokio::spawn(async move {
            let mut inbox = inbox;
            while inbox.recv().await.is_some() {}
        });
        hub.phase.send_replace(phase);
        let (client, server) = duplex(1024);
        let current = hub.credentials.current();
        tokio::spawn(converse(server, newcomer(&hub), Arc::clone(&hub), current, "me:1".to_owned()));
        (client, hub)
    }

    async fn line(client: &mut DuplexStream) -> String {
        let mut line = Vec::new();
        loop {
            match client.read_u8().await.unwrap() {
                b'\n' => return String::from_utf8(line).unwrap(),
                byte => line.push(byte),
            }
        }
    }

    async fn answer(client: &mut DuplexStream, token: &[u8]) {
        let greeting = line(client).await;
        let (_, nonce) = greeting.split_once(' ').unwrap();
        let mut line = Vec::new();
        ticketing_protocol::handshake::encode_response(token, nonce, false, &mut line);
        client.write_all(&line).await.unwrap();
    }

    async fn expect_end(client: &mut DuplexStream, text: &str) {
        let mut rest = String::new();
        client.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, text);
    }

    /// Ten thousand idle connections are ten thousand of these.
    #[tokio::test]
    async fn a_connection_takes_little_memory() {
        let (hub, _inbox) = hub();
        let (_client, server) = duplex(1);
        let current = hub.credentials.current();
        let connection = converse(server, newcomer(&hub), Arc::clone(&hub), current, String::new());
        assert!(size_of_val(&connection) <= 2048, "{} bytes", size_of_val(&connection));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_frame_says_that_the_session_is_open() {
        let (mut client, hub) = client(Phase::Serving);
        assert_eq!(hub.counters.unauthenticated.get(), 1);
        answer(&mut client, b"").await;
        assert_eq!(line(&mut client).await, "Lme:1");
        assert_eq!((hub.counters.unauthenticated.get(), hub.counters.connections.get()), (0, 1));
        client.shutdown().await.unwrap();
        expect_end(&mut client, "").await;
        drop(client);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(hub.counters.connections.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_client_is_told_after_a_pause() {
        let (mut client, hub) = client(Phase::Serving);
        let start = Instant::now();
        answer(&mut client, b"wrong").await;
        expect_end(&mut client, "Eauth_failed\n").await;
        assert_eq!(start.elapsed(), REFUSAL_DELAY);
        assert_eq!(hub.counters.errors(Reason::AuthFailed).get(), 1);
        assert_eq!(hub.counters.authenticated.get(), 0);
    }

    #[test]
    fn a_crowd_of_one_sort_hides_no_refusal_of_another() {
        let (hub, _inbox) = hub();
        for sort in [hub::Refused::TooMany, hub::Refused::Tls, hub::Refused::Silent, hub::Refused::Unproved] {
            assert!(hub.may_log(sort), "{sort:?}");
            assert!(!hub.may_log(sort), "{sort:?} again at once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_silent_to_the_end_takes_no_place_of_others_for_longer() {
        let (_client, hub) = client(Phase::Serving);
        let start = Instant::now();
        while hub.counters.unauthenticated.get() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let took = start.elapsed();
        let most = HANDSHAKE_TIMEOUT + REFUSAL_DELAY;
        assert!(took >= most && took <= most + Duration::from_millis(100), "{took:?}");
        // It still is a connection, which does not read what it is told.
        assert_eq!(hub.counters.connections.get(), 1);
        sleep(crate::farewell::LINGER).await;
        assert_eq!(hub.counters.connections.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_served_before_old_leases_have_run_out() {
        let (mut client, _hub) = client(Phase::Grace);
        let start = Instant::now();
        answer(&mut client, b"").await;
        expect_end(&mut client, "Enot_active\n").await;
        assert_eq!(start.elapsed(), REFUSAL_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_part_in_nothing_says_so_after_the_handshake() {
        let (mut client, hub) = client(Phase::Serving);
        hub.view.send_modify(|view| view.domain = None);
        let start = Instant::now();
        answer(&mut client, b"").await;
        expect_end(&mut client, "Enot_active\n").await;
        assert_eq!(start.elapsed(), REFUSAL_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_draining_server_does_not_even_greet() {
        let (mut newcomer, _hub) = client(Phase::Draining);
        expect_end(&mut newcomer, "Eshutting_down\n").await;

        let (mut unauthenticated, hub) = client(Phase::Serving);
        line(&mut unauthenticated).await;
        hub.phase.send_replace(Phase::Ending);
        expect_end(&mut unauthenticated, "Eshutting_down\n").await;
    }
}
