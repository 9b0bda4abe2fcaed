//! How this process answers its peers.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use openraft::Snapshot;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::{AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ticketing_engine::Nanos;
use ticketing_peer::{Call, Handler, Link, Party, Refusal, Service};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::born::Append;
use crate::calls::{Form, Hello, Join, Joined, Piece, Received, decode, encode, kind};
use crate::node::{Inner, Running};
use crate::standing::Stage;
use crate::types::{SnapshotMeta, Vote};

/// How long this process may take to become a founder: it has a database to make.
const FORM_PATIENCE: Duration = Duration::from_secs(15);

/// A snapshot larger than this is not taken: a million locks are a tenth of it.
const LARGEST_SNAPSHOT: u64 = 1 << 31;

/// The address where peers are answered.
pub(crate) struct Front(pub(crate) Arc<Inner>);

impl Service for Front {
    fn me(&self) -> Party {
        let standing = self.0.standing.borrow();
        Party {
            cluster: standing.identity.unwrap_or(Party::NOBODY.cluster),
            node: standing.node.unwrap_or(0),
        }
    }

    fn admit(&self, from: Party, _meant: Party) -> Result<(), Refusal> {
        let Some(running) = self.0.running() else { return Ok(()) };
        if from.node != 0 && running.is_gone(from.node) {
            return Err(Refusal::Retired);
        }
        Ok(())
    }

    fn connected(&self, link: Link) -> Box<dyn Handler> {
        Box::new(Conversation { inner: Arc::clone(&self.0), link, incoming: None })
    }
}

impl Running {
    /// Whether this node was a member and is none any more. What is known here may
    /// be old, but it was true once, and node ids do not come back.
    fn is_gone(&self, node: u64) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.committed_membership_config.membership();
        let has_begun = membership.voter_ids().next().is_some();
        has_begun
            && membership.get_node(&node).is_none()
            && self.machine.registry(|registry| registry.is_issued(node) && !registry.is_seated(node))
    }
}

/// One connection of a peer.
struct Conversation {
    inner: Arc<Inner>,
    link: Link,
    /// The snapshot that is coming in.
    incoming: Option<Incoming>,
}

struct Incoming {
    vote: Vote,
    meta: SnapshotMeta,
    total: u64,
    bytes: BytesMut,
    /// When the first piece came. All of them were written before that.
    began: Nanos,
}

impl Handler for Conversation {
    fn call(&mut self, call: Call) {
        match call.kind {
            kind::HELLO => {
                call.reply.send(encode(&self.hello()));
            }
            kind::FORM | kind::BEGIN | kind::JOIN | kind::REPLACE => {
                tokio::spawn(attend(Arc::clone(&self.inner), call));
            }
            kind::APPEND | kind::VOTE | kind::PRE_VOTE | kind::SNAPSHOT | kind::TRANSFER => {
                match self.colleague() {
                    Some(running) => self.raft(running, call),
                    None => call.reply.fail("this process is not the node that is meant"),
                }
            }
            unknown => call.reply.fail(&format!("calls of kind {unknown} are not known here")),
        }
    }
}

impl Conversation {
    fn hello(&self) -> Hello {
        let from = self.link.from.node;
        let is_gone = |running: Arc<Running>| from != 0 && running.is_gone(from);
        Hello { retired: self.inner.running().is_some_and(is_gone), ..self.inner.hello() }
    }

    /// This node, if the peer is one of its cluster and means it.
    fn colleague(&self) -> Option<Arc<Running>> {
        let running = self.inner.running()?;
        let Link { from, meant, .. } = self.link;
        let both = from.cluster == running.identity && meant.cluster == running.identity;
        (both && from.node != 0 && meant.node == running.node).then_some(running)
    }

    fn raft(&mut self, running: Arc<Running>, call: Call) {
        let now = (self.inner.config.clock)();
        match call.kind {
            kind::APPEND => pass::<Append, _, _>(call, |append| async move {
                let answer = running.raft.append_entries(append.arrived(now)?).await;
                if matches!(answer, Ok(AppendEntriesResponse::Success)) {
                    *running.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                }
                answer.map_err(|error| error.to_string())
            }),
            kind::VOTE => pass::<VoteRequest<_>, _, _>(call, |request| async move {
                running.raft.vote(request).await.map_err(|error| error.to_string())
            }),
            kind::PRE_VOTE => pass::<VoteRequest<_>, _, _>(call, |request| async move {
                running.raft.pre_vote(request).await.map_err(|error| error.to_string())
            }),
            kind::TRANSFER => pass::<TransferLeaderRequest<_>, _, _>(call, |request| async move {
                running.raft.handle_transfer_leader(request).await.map_err(|error| error.to_string())
            }),
            _ => self.piece(now, running, call),
        }
    }

    fn piece(&mut self, now: Nanos, running: Arc<Running>, call: Call) {
        let piece = match decode::<Piece>(&call.body) {
            Ok(piece) => piece,
            Err(problem) => return call.reply.fail(&problem),
        };
        match self.take(now, &piece) {
            Ok(None) => call.reply.send(encode(&Received::More)),
            Err(why) => call.reply.send(encode(&Received::Again(why))),
            Ok(Some(incoming)) => {
                tokio::spawn(async move {
                    match install(&running, incoming).await {
                        Ok(vote) => call.reply.send(encode(&Received::Whole(vote))),
                        Err(problem) => call.reply.fail(&problem),
                    }
                });
            }
        }
    }

    /// Adds a piece; returns the snapshot when it is whole.
    fn take(&mut self, now: Nanos, piece: &Piece) -> Result<Option<Incoming>, String> {
        if piece.offset == 0 {
            if piece.total > LARGEST_SNAPSHOT {
                return Err(format!("a snapshot of {} bytes is too large", piece.total));
            }
            let Piece { vote, meta, total, .. } = piece;
            let (vote, meta, total) = (*vote, meta.clone(), *total);
            self.incoming = Some(Incoming { vote, meta, total, bytes: BytesMut::new(), began: now });
        }
        let incoming = self.incoming.as_mut().ok_or("it does not begin at the beginning")?;
        let same =
            incoming.vote == piece.vote && incoming.meta == piece.meta && incoming.total == piece.total;
        let after = piece.offset + piece.bytes.len() as u64;
        if !same || piece.offset != incoming.bytes.len() as u64 || after > incoming.total {
            self.incoming = None;
            return Err("a piece does not follow the one before".to_owned());
        }
        incoming.bytes.extend_from_slice(&piece.bytes);
        Ok(if after == incoming.total { self.incoming.take() } else { None })
    }
}

async fn install(running: &Running, incoming: Incoming) -> Result<Vote, String> {
    let Incoming { vote, meta, bytes, began, .. } = incoming;
    let machine = running.machine.clone();
    let read = spawn_blocking(move || machine.read(began, &bytes));
    let image = read.await.map_err(|error| error.to_string())?.map_err(|bad| bad.to_string())?;
    let installed = running.raft.install_full_snapshot(vote, Snapshot { meta, snapshot: image }).await;
    Ok(installed.map_err(|fatal| fatal.to_string())?.vote)
}

/// Lets openraft answer. Its own queue is reached before this returns, so that
/// messages keep their order.
fn pass<Q, A, F>(call: Call, ask: impl FnOnce(Q) -> F)
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, String>> + Send + 'static,
{
    let request = match decode::<Q>(&call.body) {
        Ok(request) => request,
        Err(problem) => return call.reply.fail(&problem),
    };
    let answer = ask(request);
    let mut answered = Box::pin(async move {
        match answer.await {
            Ok(answer) => call.reply.send(encode(&answer)),
            Err(problem) => call.reply.fail(&problem),
        }
    });
    if (&mut answered).now_or_never().is_none() {
        tokio::spawn(answered);
    }
}

/// Calls that take their time.
async fn attend(inner: Arc<Inner>, call: Call) {
    let body = call.body.clone();
    let answer: Result<Bytes, String> = match call.kind {
        kind::FORM => match decode(&body) {
            Ok(form) => inner.form(form).await.map(|()| Bytes::new()),
            Err(problem) => Err(problem),
        },
        kind::BEGIN => inner.begin().await.map(|()| Bytes::new()),
        kind::REPLACE => match decode::<u8>(&body) {
            Ok(slot) => inner.allow_takeover(slot).map(|()| Bytes::new()),
            Err(problem) => Err(problem),
        },
        _ => match decode(&body) {
            Ok(join) => Ok(encode(&inner.seat(join).await).into()),
            Err(problem) => Err(problem),
        },
    };
    match answer {
        Ok(answer) => call.reply.send(answer),
        Err(problem) => {
            debug!(%problem, "a call of a peer failed");
            call.reply.fail(&problem);
        }
    }
}

impl Inner {
    /// What this process says of itself.
    pub(crate) fn hello(&self) -> Hello {
        let standing = self.standing.borrow().clone();
        let leader = self.running().and_then(|running| running.member(standing.leader?.node));
        Hello {
            cluster: standing.identity.map_or(0, |identity| u128::from_be_bytes(identity.0)),
            node: standing.node.unwrap_or(0),
            slot: self.config.slot,
            incarnation: self.incarnation,
            over: standing.stage == Stage::Over,
            begun: matches!(standing.stage, Stage::Member | Stage::Over),
            leader,
            slots: self.config.slots.names(),
            retired: false,
            former: self.marker.as_ref().map_or(0, |marker| marker.noted().identity),
            token_floor: self.token_floor(),
        }
    }

    /// No token of an identity until now is above this one, as far as this process knows.
    fn token_floor(&self) -> u64 {
        let noted = self.marker.as_ref().map_or(0, |marker| marker.noted().token_floor);
        let last = self.running().map_or(0, |running| running.machine.last_token());
        noted.max(last)
    }

    /// Hands a formation to the task that owns the life of this process.
    async fn form(&self, form: Form) -> Result<(), String> {
        let (done, outcome) = oneshot::channel();
        let ended = || "this process is ending".to_owned();
        self.forms.send((form, done)).await.map_err(|_| ended())?;
        match timeout(FORM_PATIENCE, outcome).await {
            Ok(outcome) => outcome.map_err(|_| ended())?,
            Err(_) => Err(format!("it has not begun within {FORM_PATIENCE:?}: is its disk very slow?")),
        }
    }

    /// Whether the leader would seat this process, and if so, where.
    async fn seat(&self, join: Join) -> Joined {
        let Some(running) = self.running() else { return Joined::NotLeader(None) };
        running.seat(self, join).await
    }
}
