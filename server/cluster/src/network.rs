//! How openraft reaches the other nodes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use openraft::base::{BoxFuture, BoxStream};
use openraft::entry::RaftEntry;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::{Serialize, de::DeserializeOwned};
use ticketing_engine::Nanos;
use ticketing_peer::{CallError, Peer, Refusal};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::born::Append;
use crate::calls::{Piece, Received, decode, encode, kind};
use crate::image::Image;
use crate::machine::FullSnapshot;
use crate::peers::Peers;
use crate::riding::Riding;
use crate::types::{Member, NodeId, Types, Vote};

/// A peer that has not answered for this long is not waited for: its connection
/// is dropped, and the next message tries another one.
const PATIENCE: Duration = Duration::from_millis(500);

/// The last piece of a snapshot is answered when all of it is installed.
const INSTALL_PATIENCE: Duration = Duration::from_secs(30);

/// Messages with entries that one peer may owe an answer for.
const PIPELINE: usize = 64;

/// Heartbeats share the connection with pieces of a snapshot, so these are small.
const PIECE_BYTES: usize = 256 * 1024;

/// Makes the connections of one node.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) peers: Peers,
    pub(crate) clock: fn() -> Nanos,
    /// Told when a peer says that this node is none any more.
    pub(crate) superseded: Arc<Notify>,
}

impl Network {
    fn link(&self, peer: Peer) -> Link {
        Link { peer, clock: self.clock, superseded: Arc::clone(&self.superseded) }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: NodeId, member: &Member) -> Link {
        self.link(self.peers.to(member, target))
    }

    async fn new_snapshot_client(&mut self, target: NodeId, member: &Member) -> Link {
        self.link(self.peers.with_snapshots_to(member, target))
    }
}

/// The way to one node.
pub(crate) struct Link {
    peer: Peer,
    clock: fn() -> Nanos,
    superseded: Arc<Notify>,
}

fn failed(error: &CallError, superseded: &Notify) -> RPCError<Types> {
    if *error == CallError::Refused(Refusal::Retired) {
        superseded.notify_one();
    }
    match error {
        CallError::Unreachable(_) | CallError::Refused(_) => RPCError::Unreachable(Unreachable::new(error)),
        CallError::TimedOut
        | CallError::Closed(_)
        | CallError::Overloaded
        | CallError::TooLarge { .. }
        | CallError::Failed(_) => RPCError::Network(NetworkError::new(error)),
    }
}

fn senseless(problem: &str) -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string(format!("the answer makes no sense: {problem}")))
}

impl Link {
    /// The message is written in the order of these calls, not of the awaits.
    fn ask<A: DeserializeOwned, M: Serialize>(
        &self,
        kind: u8,
        message: &M,
    ) -> impl Future<Output = Result<A, RPCError<Types>>> + Send + use<A, M> {
        let answer = self.peer.call(kind, encode(message), Instant::now() + PATIENCE);
        let superseded = Arc::clone(&self.superseded);
        async move {
            let answer = answer.await.map_err(|error| failed(&error, &superseded))?;
            decode(&answer).map_err(|problem| senseless(&problem))
        }
    }

    /// The same, for entries.
    fn append(
        &self,
        request: AppendEntriesRequest<Types>,
    ) -> impl Future<Output = Result<AppendEntriesResponse<Types>, RPCError<Types>>> + Send + use<> {
        self.ask(kind::APPEND, &Append::new(request, (self.clock)()))
    }

    async fn send_pieces(
        &self,
        vote: Vote,
        snapshot: FullSnapshot,
    ) -> Result<SnapshotResponse<Types>, RPCError<Types>> {
        let (image, clock) = (snapshot.snapshot, self.clock);
        let write = spawn_blocking(move || Bytes::from(image.write(clock())));
        let whole = write.await.map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        let total = whole.len();
        let mut offset = 0;
        loop {
            let end = (offset + PIECE_BYTES).min(total);
            let bytes: Bytes = whole.slice(offset..end);
            let piece = Piece {
                vote,
                meta: snapshot.meta.clone(),
                total: total as u64,
                offset: offset as u64,
                bytes,
            };
            let patience = if end == total { INSTALL_PATIENCE } else { 4 * PATIENCE };
            let answer = self.peer.call(kind::SNAPSHOT, encode(&piece), Instant::now() + patience);
            let answer = answer.await.map_err(|error| failed(&error, &self.superseded))?;
            match decode(&answer).map_err(|problem| senseless(&problem))? {
                Received::Whole(vote) => return Ok(SnapshotResponse::new(vote)),
                Received::More if end < total => offset = end,
                Received::More => return Err(senseless("more is asked for than there is")),
                Received::Again(why) => {
                    return Err(RPCError::Network(NetworkError::from_string(why)));
                }
            }
        }
    }
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = Image;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.append(request).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        let link = &*self;
        let answers = Riding::new(requests).map(move |request| {
            let before = request.prev_log_id;
            let last = request.entries.last().map(RaftEntry::log_id).or(before);
            let answer = link.append(request);
            async move {
                match answer.await? {
                    // Nothing comes before nothing, so nothing can conflict with it.
                    AppendEntriesResponse::Conflict if before.is_none() => {
                        Err(senseless("a conflict with the beginning of the log"))
                    }
                    answer @ (AppendEntriesResponse::Success
                    | AppendEntriesResponse::PartialSuccess(_)
                    | AppendEntriesResponse::Conflict
                    | AppendEntriesResponse::HigherVote(_)) => Ok(answer.into_stream_result(before, last)),
                }
            }
        });
        let answers: BoxStream<'s, _> = Box::pin(answers.buffered(PIPELINE));
        Box::pin(async move { Ok(answers) })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask(kind::VOTE, &request).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask(kind::PRE_VOTE, &request).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: FullSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            sent = self.send_pieces(vote, snapshot) => sent.map_err(|error| match error {
                RPCError::Timeout(error) => StreamingError::Timeout(error),
                RPCError::Unreachable(error) => StreamingError::Unreachable(error),
                RPCError::Network(error) => StreamingError::Network(error),
                RPCError::RemoteError(error) => StreamingError::Network(NetworkError::new(&error)),
            }),
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        self.ask(kind::TRANSFER, &request).await
    }
}
