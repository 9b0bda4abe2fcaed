//! One client connection at the server: bytes to requests, answers to bytes, by the
//! real codec.

use std::collections::VecDeque;

use ticketing_engine::{Answer, Nanos, Request};
use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key, Reason, ServerFrame};

use super::{Inbox, Node};
use crate::context::Context;
use crate::events::NodeEvent;
use crate::network::Side;
use crate::time::{SECOND, Time};

/// While answers are owed, a server shows that it lives.
const KEEP_ALIVE: Time = 2 * SECOND;

/// One client connection.
#[derive(Debug)]
pub(crate) struct Conn {
    decoder: Decoder<ClientToServer>,
    unsent: VecDeque<Frame>,
    /// Answers that are owed.
    owed: u32,
    quiet_since: Time,
    keeping_alive: bool,
}

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    sent: usize,
    /// The grant that it tells of.
    grant: Option<(u64, Box<[u8]>)>,
}

/// A request on its way to the engine.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    what: What,
    key: Box<[u8]>,
    received: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Acquire { wait_secs: u8, lease_secs: u8, owner: u64 },
    Release { token: u64 },
    Cancel { owner: u64 },
    Place { owner: u64 },
    Verify { owner: u64 },
}

impl Asked {
    fn new(frame: ClientFrame<'_>, received: Nanos) -> Self {
        let (what, key) = match frame {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                (What::Acquire { wait_secs: wait, lease_secs: lease, owner }, key)
            }
            ClientFrame::Release { token, key } => (What::Release { token }, key),
            ClientFrame::Cancel { owner, key } => (What::Cancel { owner }, key),
            ClientFrame::Place { owner, key } => (What::Place { owner }, key),
            ClientFrame::Verify { owner, key } => (What::Verify { owner }, key),
        };
        Self { what, key: key.as_bytes().into(), received }
    }

    pub(super) fn request(&self) -> Request<'_> {
        let key = &*self.key;
        match self.what {
            What::Acquire { wait_secs, lease_secs, owner } => {
                Request::Acquire { wait_secs, lease_secs, owner, key, received: self.received }
            }
            What::Release { token } => Request::Release { token, key },
            What::Cancel { owner } => Request::Cancel { owner, key },
            What::Place { owner } => Request::Place { owner, key },
            What::Verify { owner } => Request::Verify { owner, key },
        }
    }
}

impl Conn {
    fn say(&mut self, frame: ServerFrame<'_>, grant: Option<(u64, Box<[u8]>)>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.unsent.push_back(Frame { bytes, sent: 0, grant });
    }

    /// Says who leads, by the name of its slot.
    pub(super) fn say_leader(&mut self, leader: Option<u8>) {
        self.say(ServerFrame::Leader { address: &address(leader) }, None);
    }

    /// Takes an answer, as the server's session says it.
    pub(super) fn put(&mut self, answer: Answer<'_>, in_office: bool, leader: Option<u8>) -> Ending {
        self.owed = self.owed.saturating_sub(1);
        // Every key of the engine came in through a `Key`.
        let legal = |key| Key::from_bytes(key).ok();
        let moved = ServerFrame::Moved { address: &address(leader) };
        let (frame, grant) = match answer {
            Answer::Granted { token, owner, ends_ms, key } => {
                let frame = legal(key).map(|key| ServerFrame::GrantedUntil { token, owner, ends_ms, key });
                (frame, Some((token, key.into())))
            }
            Answer::TimedOut { owner, key } => {
                (legal(key).map(|key| ServerFrame::TimedOut { owner, key }), None)
            }
            Answer::Busy { owner, key } | Answer::VerifiedBusy { owner, key } => {
                (legal(key).map(|key| ServerFrame::Busy { owner, key }), None)
            }
            Answer::Released { token, key } => {
                (legal(key).map(|key| ServerFrame::Released { token, key }), None)
            }
            Answer::NotHeld { token, key } => {
                (legal(key).map(|key| ServerFrame::NotHeld { token, key }), None)
            }
            Answer::Place { owner, place, waiters, key } => {
                (legal(key).map(|key| ServerFrame::Place { owner, place, waiters, key }), None)
            }
            Answer::Verified { token, owner, key } => {
                (legal(key).map(|key| ServerFrame::GrantedUntil { token, owner, ends_ms: 0, key }), None)
            }
            Answer::NotLeader => (Some(moved), None),
            Answer::CloseUnknown => return Ending::Close,
            Answer::CloseOverloaded => {
                self.say(ServerFrame::Error { reason: Reason::Overloaded.as_str() }, None);
                return Ending::Close;
            }
        };
        let Some(frame) = frame else { return Ending::Close };
        self.say(frame, grant);
        if matches!(answer, Answer::Busy { .. }) && !in_office {
            self.say(moved, None);
        }
        Ending::None
    }
}

/// By what name the nodes call the one in a slot.
pub(crate) fn address(slot: Option<u8>) -> String {
    slot.map_or_else(String::new, |slot| format!("node-{slot}:5225"))
}

impl Node {
    /// A client has come.
    pub(crate) fn accept(&mut self, ctx: &mut Context, id: u64) {
        let mut conn = Conn {
            decoder: Decoder::new(Extension::On),
            unsent: VecDeque::new(),
            owed: 0,
            quiet_since: ctx.now,
            keeping_alive: false,
        };
        conn.say_leader(self.server.hint);
        self.server.conns.insert(id, conn);
        self.flush(ctx, id);
    }

    /// Bytes of a client.
    pub(crate) fn read(&mut self, ctx: &mut Context, id: u64, bytes: &[u8]) {
        let received = self.local(ctx);
        let Some(conn) = self.server.conns.get_mut(&id) else { return };
        let mut requests = Vec::new();
        let outcome = conn.decoder.feed(bytes, |frame| requests.push(Asked::new(frame, received)));
        let owed = requests.iter().filter(|asked| !matches!(asked.what, What::Cancel { .. })).count();
        if conn.owed == 0 {
            conn.quiet_since = ctx.now;
        }
        conn.owed += u32::try_from(owed).unwrap_or(0);
        self.keep_alive_later(ctx, id);
        if !requests.is_empty() {
            self.bring(ctx, Inbox::Requests(id, requests));
        }
        if let Err(malformed) = outcome {
            ctx.ledger.fail("Framing", format!("node {}: from a client: {malformed}", self.slot));
        }
    }

    /// Lets as much leave as the socket takes.
    pub(crate) fn flush(&mut self, ctx: &mut Context, id: u64) {
        let Some(conn) = self.server.conns.get_mut(&id) else { return };
        while let Some(frame) = conn.unsent.front_mut() {
            let rest = frame.bytes.get(frame.sent..).unwrap_or_default();
            let Context { now, queue, random, network, .. } = ctx;
            match network.write(*now, queue, random, (id, Side::Client), rest) {
                // Its end is on its way here.
                None | Some(0) => return,
                Some(taken) => {
                    frame.sent += taken;
                    conn.quiet_since = *now;
                    if frame.sent == frame.bytes.len() {
                        conn.unsent.pop_front();
                    }
                }
            }
        }
    }

    /// The connection is over at this end, and the other end learns of it.
    pub(crate) fn hang_up(&mut self, ctx: &mut Context, id: u64) {
        let Some(conn) = self.server.conns.remove(&id) else { return };
        let Context { now, queue, random, network, .. } = ctx;
        network.close(*now, queue, random, id, Side::Server);
        self.bring(ctx, Inbox::Closed(id));
        let unsent = conn.unsent.into_iter().filter(|frame| frame.sent == 0);
        let lost = unsent.filter_map(|frame| frame.grant).collect::<Vec<_>>();
        if !lost.is_empty() {
            self.bring(ctx, Inbox::Lost(lost));
        }
    }

    fn keep_alive_later(&mut self, ctx: &mut Context, id: u64) {
        let Some(conn) = self.server.conns.get_mut(&id) else { return };
        if conn.owed > 0 && !std::mem::replace(&mut conn.keeping_alive, true) {
            let quiet = conn.unsent.is_empty();
            let due = if quiet { conn.quiet_since + KEEP_ALIVE } else { ctx.now + KEEP_ALIVE };
            let pause = due.saturating_sub(ctx.now);
            ctx.node_in(pause, self.slot, self.life, NodeEvent::KeepAlive(id));
        }
    }

    pub(crate) fn keep_alive(&mut self, ctx: &mut Context, id: u64) {
        let Some(conn) = self.server.conns.get_mut(&id) else { return };
        conn.keeping_alive = false;
        let told = self.raft.deposed_at.max(self.server.awake_since) + SECOND;
        if self.raft.leading.is_none() && ctx.now > told && !self.server.queues.is_empty() {
            ctx.ledger
                .fail("Office", format!("node {} does not lead, and still lets clients wait", self.slot));
        }
        if conn.owed > 0 && conn.unsent.is_empty() && ctx.now >= conn.quiet_since + KEEP_ALIVE {
            conn.unsent.push_back(Frame { bytes: vec![b'\n'], sent: 0, grant: None });
            conn.quiet_since = ctx.now;
            self.flush(ctx, id);
        }
        self.keep_alive_later(ctx, id);
    }
}

/// What an answer means for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    Close,
}
