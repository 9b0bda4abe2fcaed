//! What a node does with the calls of its peers.

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

use crate::identity::{Link, Party};
use crate::refusal::Refusal;

/// What a node answers with. It is asked at every handshake, as a process gets
/// its identity and its node id while it runs.
pub trait Service: Send + Sync + 'static {
    /// Who this process is now.
    fn me(&self) -> Party;

    /// Whether this peer may talk to us at all. It has proved the secret, and
    /// the ids of both sides do not contradict each other.
    ///
    /// # Errors
    /// Why not: [`Refusal::Retired`] or [`Refusal::NotNow`], say. The dialler is
    /// told.
    fn admit(&self, from: Party, meant: Party) -> Result<(), Refusal>;

    /// A peer is connected. What [`Link::answering`] says of this process was
    /// true at the handshake, and this is whom the dialler believes to talk to.
    fn connected(&self, link: Link) -> Box<dyn Handler>;
}

/// What takes the calls of one connection. Dropped at its end.
pub trait Handler: Send + 'static {
    /// Takes a call, in the order in which they were made. Must not block; the
    /// answer may be given later and from elsewhere, in any order.
    fn call(&mut self, call: Call);
}

/// What a peer asks.
#[derive(Debug)]
pub struct Call {
    /// What is asked for. The transport does not care.
    pub kind: u8,
    /// With what.
    pub body: Bytes,
    /// Takes the answer.
    pub reply: Reply,
}

/// Takes the answer to one call. Dropped without a word, it tells the caller
/// that the call failed.
#[derive(Debug)]
pub struct Reply {
    answer: Answer,
    max_body: u32,
    to: Option<UnboundedSender<Answer>>,
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) body: Bytes,
}

/// The kinds of an answer's frame.
pub(crate) const ANSWERED: u8 = 0;
pub(crate) const FAILED: u8 = 1;

/// The longest text of a failure, in bytes.
const MAX_TEXT: usize = 1024;

impl Reply {
    /// `to` gets exactly one answer, and there are no more of them than calls in
    /// flight.
    pub(crate) fn new(id: u64, max_body: u32, to: UnboundedSender<Answer>) -> Self {
        let body = Bytes::from_static(b"the node dropped the call without an answer");
        Self { answer: Answer { kind: FAILED, id, body }, max_body, to: Some(to) }
    }

    /// Answers.
    pub fn send(mut self, body: impl Into<Bytes>) {
        let (body, max) = (body.into(), self.max_body);
        if u32::try_from(body.len()).is_ok_and(|bytes| bytes <= max) {
            self.answer.kind = ANSWERED;
            self.answer.body = body;
        } else {
            self.fail(&format!("the answer has {} bytes; the most is {max}", body.len()));
        }
    }

    /// Tells the caller that the call failed, and why, in at most 1,024 bytes.
    pub fn fail(mut self, why: &str) {
        let why = why.get(..why.floor_char_boundary(MAX_TEXT)).unwrap_or(why);
        self.answer.body = Bytes::copy_from_slice(why.as_bytes());
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Self { answer: Answer { kind, id, body }, to, .. } = self;
        if let Some(to) = to.take() {
            // If the connection is gone, nobody waits for the answer.
            let _ = to.send(Answer { kind: *kind, id: *id, body: std::mem::take(body) });
        }
    }
}
