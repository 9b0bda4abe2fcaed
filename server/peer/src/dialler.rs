//! The task behind a [`Peer`](crate::Peer): connects when there is a call, and
//! hands calls to the connection while there is one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;
use tracing::{debug, info, warn};

use crate::asking::{Lost, Over, ask};
use crate::config::Config;
use crate::handshake::{Binding, NoLink, dial};
use crate::identity::Party;
use crate::peer::{Asked, CallError};
use crate::quiet::Quiet;
use crate::socket::{self, Stream};
use crate::tls::server_name;

/// After the first attempt that failed.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// After many attempts that failed.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Opens the connection, again and again.
pub(crate) struct Dialler {
    place: Place,
    calls: UnboundedReceiver<Asked>,
    /// Calls that were made while there is no connection yet.
    waiting: Vec<Asked>,
    trouble: Option<Trouble>,
    /// What was logged last of why the peer is out of reach, by its kind.
    told: Option<&'static str>,
    log: Quiet,
}

/// What is dialled, and as whom.
struct Place {
    address: Arc<str>,
    from: Party,
    meant: Party,
    config: Config,
}

/// Nothing worked since it last worked.
struct Trouble {
    why: CallError,
    pause: Duration,
    until: Instant,
}

impl Dialler {
    pub(crate) fn new(
        address: Arc<str>,
        from: Party,
        meant: Party,
        config: Config,
        calls: UnboundedReceiver<Asked>,
    ) -> Self {
        let place = Place { address, from, meant, config };
        Self { place, calls, waiting: Vec::new(), trouble: None, told: None, log: Quiet::default() }
    }

    /// Until the last [`Peer`](crate::Peer) is dropped.
    pub(crate) async fn run(mut self) {
        while let Some(asked) = self.calls.recv().await {
            match &self.trouble {
                Some(trouble) if Instant::now() < trouble.until => asked.end.with(Err(trouble.why.clone())),
                Some(_) | None => {
                    self.waiting.push(asked);
                    match self.connect().await {
                        Some(Ok(stream)) => {
                            if self.converse(stream).await.is_none() {
                                return;
                            }
                        }
                        Some(Err(no_link)) => self.failed(&no_link),
                        None => break,
                    }
                }
            }
        }
        for asked in self.waiting {
            asked.end.with(Err(CallError::from(&Lost::Dropped)));
        }
    }

    /// Tries to connect, while calls come in and run out of time. `None`: the
    /// last [`Peer`](crate::Peer) was dropped.
    ///
    /// An attempt has its own deadline: were it that of a call, calls with short
    /// ones could never open a connection to a distant peer.
    async fn connect(&mut self) -> Option<Result<Box<dyn Stream>, NoLink>> {
        let Self { place, calls, waiting, .. } = self;
        let mut attempt = pin!(place.connect());
        loop {
            let first = waiting.iter().map(|asked| asked.deadline).min();
            tokio::select! {
                biased;
                connected = &mut attempt => return Some(connected),
                asked = calls.recv() => waiting.push(asked?),
                () = sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                    let now = Instant::now();
                    for late in waiting.extract_if(.., |asked| asked.deadline <= now) {
                        late.end.with(Err(CallError::TimedOut));
                    }
                }
            }
        }
    }

    /// Uses the connection until it ends. `None`: the last
    /// [`Peer`](crate::Peer) was dropped.
    async fn converse(&mut self, stream: Box<dyn Stream>) -> Option<()> {
        let Place { address, meant, config, .. } = &self.place;
        debug!(peer = %address, node = meant.node, "a peer is connected");
        if self.told.take().is_some() {
            info!(peer = %address, node = meant.node, "a peer is connected again");
        }
        let Over { lost, useful } = ask(stream, &mut self.waiting, &mut self.calls, &config.limits).await;
        if useful {
            self.trouble = None;
        }
        if matches!(lost, Lost::Dropped) {
            return None;
        }
        if let Some(left_out) = self.log.may_say(lost.kind(), Instant::now()) {
            self.told = Some(lost.kind());
            warn!(peer = %address, node = meant.node, reason = %lost, left_out, "the connection to a peer was lost");
        }
        if !useful {
            let why = format!("the last connection ended without an answer: {lost}");
            self.pause(CallError::Unreachable(why.into()));
        }
        Some(())
    }

    fn failed(&mut self, no_link: &NoLink) {
        let Place { address, meant, .. } = &self.place;
        // Once, however long it lasts, unless the reason becomes another one.
        if self.told != Some(no_link.kind())
            && let Some(left_out) = self.log.may_say(no_link.kind(), Instant::now())
        {
            self.told = Some(no_link.kind());
            warn!(peer = %address, node = meant.node, reason = %no_link, left_out, "a peer cannot be reached");
        }
        let why = match no_link {
            NoLink::Refused(refusal) => CallError::Refused(*refusal),
            NoLink::Address(_)
            | NoLink::Connect(_)
            | NoLink::Tls(_)
            | NoLink::Late(_)
            | NoLink::Stranger(_)
            | NoLink::Ended(_)
            | NoLink::Unproven
            | NoLink::Random(_) => CallError::Unreachable(no_link.to_string().into()),
        };
        for asked in self.waiting.drain(..) {
            asked.end.with(Err(why.clone()));
        }
        self.pause(why);
    }

    fn pause(&mut self, why: CallError) {
        let pause = self.trouble.as_ref().map_or(LEAST_PAUSE, |last| (last.pause * 2).min(LONGEST_PAUSE));
        self.trouble = Some(Trouble { why, pause, until: Instant::now() + pause });
    }
}

impl Place {
    async fn connect(&self) -> Result<Box<dyn Stream>, NoLink> {
        let timeout = self.config.limits.connect_timeout;
        match timeout_at(Instant::now() + timeout, self.link()).await {
            Ok(connected) => connected,
            Err(_) => Err(NoLink::Late(timeout)),
        }
    }

    async fn link(&self) -> Result<Box<dyn Stream>, NoLink> {
        let tcp = TcpStream::connect(&*self.address).await.map_err(NoLink::Connect)?;
        socket::tune(&tcp).and_then(|()| socket::end_at_once(&tcp)).map_err(NoLink::Connect)?;
        let Some(tls) = &self.config.tls else {
            return self.prove(Box::new(tcp), &Binding::default()).await;
        };
        let name = server_name(&self.address).ok_or_else(|| NoLink::Address(self.address.to_string()))?;
        let connector = TlsConnector::from(tls.current().dialler);
        let stream = connector.connect(name, tcp).await.map_err(NoLink::Tls)?;
        let binding = socket::binding(stream.get_ref().1).map_err(NoLink::Tls)?;
        self.prove(Box::new(stream), &binding).await
    }

    async fn prove(&self, mut stream: Box<dyn Stream>, binding: &Binding) -> Result<Box<dyn Stream>, NoLink> {
        dial(&mut stream, self.from, self.meant, &self.config.secret, binding).await?;
        Ok(stream)
    }
}
