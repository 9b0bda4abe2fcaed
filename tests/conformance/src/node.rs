//! One scripted server: its port, and which connection plays which script.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::connection::{Connection, Stop};
use crate::scenario::{Listen, Node, Open, Step, Then};
use crate::stage::{ConnectionId, Stage};
use crate::wire::{self, Wire};

/// Connections that may wait for their accept.
const BACKLOG: i32 = 64;

/// A port of our own on which nothing listens yet, so that connecting to it is
/// refused and nobody else can take it.
pub(crate) struct Port {
    socket: Socket,
    pub(crate) address: SocketAddr,
}

impl Port {
    pub(crate) fn reserve(host: std::net::IpAddr) -> std::io::Result<Self> {
        let wanted = SocketAddr::new(host, 0);
        let socket = Socket::new(Domain::for_address(wanted), Type::STREAM, None)?;
        socket.bind(&wanted.into())?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?.as_socket().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { socket, address })
    }

    fn listen(self) -> Result<TcpListener> {
        self.socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(self.socket.into())?)
    }
}

/// A node that is ready to be played.
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) port: Port,
    pub(crate) tls: Option<TlsAcceptor>,
}

impl Role {
    /// The connections whose scripts must be played.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = ConnectionId> {
        let name = self.name.clone();
        (1..=self.node.connections.len()).map(move |number| ConnectionId { node: name.clone(), number })
    }

    /// Listens at once where the scenario says so, so that whoever is told the
    /// address afterwards finds the port open.
    pub(crate) fn start(self, stage: &Arc<Stage>) -> Result<()> {
        let Self { name, node, port, tls } = self;
        let own_address = port.address.to_string();
        let stage = Arc::clone(stage);
        let cast = Cast { name, node, own_address, tls };
        match cast.node.listen.clone() {
            Listen::AtStart => {
                let listener = port.listen()?;
                tokio::spawn(async move { cast.serve(listener, &stage).await });
            }
            Listen::After(signal) => {
                tokio::spawn(async move {
                    stage.signalled(&signal).await;
                    match port.listen() {
                        Ok(listener) => cast.serve(listener, &stage).await,
                        Err(error) => stage.fail(format!("cannot listen: {error:#}")),
                    }
                });
            }
            Listen::Never => {
                tokio::spawn(async move {
                    let _reserved = port;
                    std::future::pending::<()>().await;
                });
            }
        }
        Ok(())
    }
}

struct Cast {
    name: String,
    node: Node,
    own_address: String,
    tls: Option<TlsAcceptor>,
}

impl Cast {
    async fn serve(self, listener: TcpListener, stage: &Arc<Stage>) {
        let cast = Arc::new(self);
        for number in 1.. {
            let stream = match listener.accept().await.context("accept") {
                Ok((stream, _)) => stream,
                Err(error) => return stage.fail(format!("{}: {error:#}", cast.name)),
            };
            let id = ConnectionId { node: cast.name.clone(), number };
            stage.at_step(&id, Some("accepted".into()));
            stage.record(format_args!("{id} accepted"));
            if cast.node.max_connections.is_some_and(|most| number > most) {
                stage.fail(format!("{id}: one connection too many"));
            }
            let (cast, stage) = (Arc::clone(&cast), Arc::clone(stage));
            tokio::spawn(async move {
                cast.play(&id, stream, &stage).await;
                stage.ended(&id);
            });
        }
    }

    async fn play(&self, id: &ConnectionId, stream: TcpStream, stage: &Stage) {
        let idle = [Step::Open(Open::default())];
        let listed = self.node.connections.get(id.number - 1).map(Vec::as_slice);
        let script = match (listed, self.node.then, self.node.connections.last()) {
            (Some(script), _, _) => script,
            (None, Then::RepeatLast, Some(last)) => last,
            (None, Then::Idle | Then::RepeatLast, _) => &idle,
            (None, Then::Reset, _) => {
                let _ = wire::reset(&stream);
                return;
            }
        };
        let (tls_fails, script) = match script {
            [Step::TlsFails(_), rest @ ..] => (true, rest),
            all => (false, all),
        };
        let wire = match (Wire::accept(stream, self.tls.as_ref()).await, tls_fails) {
            (Err(_), true) => return stage.at_step(id, None),
            (Ok(_), true) => return stage.fail(format!("{id}: the TLS handshake succeeded")),
            (Err(_), false) if listed.is_none() => return,
            (Err(error), false) => return stage.fail(format!("{id}: no TLS handshake: {error}")),
            (Ok(wire), false) => wire,
        };
        match Connection::new(id.clone(), stage, &self.own_address, wire).play(script).await {
            Ok(()) => {}
            Err(Stop::Wrong(why)) => stage.fail(why),
            // A connection without a script of its own has nothing to be finished.
            Err(Stop::Ended) if listed.is_none() => {}
            Err(Stop::Ended) => {
                stage.fail(format!("{id}: the client ended the connection{}", stage.positions()));
            }
        }
    }
}
