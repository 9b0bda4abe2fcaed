//! What one connection sent and was told, and when.

use std::collections::HashMap;
use std::time::Instant;

use ticketing_test_support::{Reply, wire};

/// One acquire, as its client saw it.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The lock's name.
    pub key: Vec<u8>,
    /// Unique within a history.
    pub owner: u64,
    /// Seconds.
    pub wait_secs: u8,
    /// Seconds.
    pub lease_secs: u8,
    /// Just before its first byte was handed to the socket.
    pub sent: Instant,
    /// Whether a cancel was sent for it.
    pub cancelled: bool,
    /// The answer, and when it had been read.
    pub outcome: Option<(Outcome, Instant)>,
}

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `A` or `G`, with its token.
    Granted(u64),
    /// `T`.
    TimedOut,
    /// `B`.
    Busy,
}

/// One release, as its client saw it.
#[derive(Clone, Debug)]
pub struct Release {
    /// The lock's name.
    pub key: Vec<u8>,
    /// The token it named.
    pub token: u64,
    /// Just before its first byte was handed to the socket.
    pub sent: Instant,
    /// Whether it was `R`, and when that had been read.
    pub outcome: Option<(bool, Instant)>,
}

/// The life of one connection.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// In the order in which they were sent.
    pub acquires: Vec<Acquire>,
    /// In the order in which they were sent.
    pub releases: Vec<Release>,
    /// Answers that belong to no open request.
    pub strays: Vec<Reply>,
    /// Whether the client ended the connection before everything was answered.
    pub cut_short: bool,
}

/// Notes the life of one connection, and binds each answer to its request.
#[derive(Debug, Default)]
pub struct Recorder {
    session: Session,
    open_acquires: HashMap<(Vec<u8>, u64), usize>,
    /// Releases of one key and token are answered in their order.
    open_releases: HashMap<(Vec<u8>, u64), Vec<usize>>,
}

impl Recorder {
    /// A connection on which nothing was sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes an acquire that is about to be sent; returns its bytes.
    pub fn acquire(&mut self, key: &[u8], owner: u64, wait_secs: u8, lease_secs: u8) -> Vec<u8> {
        self.open_acquires.insert((key.to_vec(), owner), self.session.acquires.len());
        self.session.acquires.push(Acquire {
            key: key.to_vec(),
            owner,
            wait_secs,
            lease_secs,
            sent: Instant::now(),
            cancelled: false,
            outcome: None,
        });
        wire::acquire(key, owner, wait_secs, lease_secs)
    }

    /// Notes a cancel that is about to be sent; returns its bytes.
    pub fn cancel(&mut self, key: &[u8], owner: u64) -> Vec<u8> {
        if let Some(&index) = self.open_acquires.get(&(key.to_vec(), owner)) {
            self.session.acquires[index].cancelled = true;
        }
        wire::cancel(key, owner)
    }

    /// Notes a release that is about to be sent; returns its bytes.
    pub fn release(&mut self, key: &[u8], token: u64) -> Vec<u8> {
        self.open_releases.entry((key.to_vec(), token)).or_default().push(self.session.releases.len());
        self.session.releases.push(Release { key: key.to_vec(), token, sent: Instant::now(), outcome: None });
        wire::release(key, token)
    }

    /// Notes an answer that has just been read; returns the outcome if it answers an acquire.
    pub fn answer(&mut self, reply: &Reply) -> Option<Outcome> {
        let now = Instant::now();
        let (owner, key, outcome) = match reply {
            Reply::Granted { token, owner, key } | Reply::GrantedUntil { token, owner, key, .. } => {
                (owner, key, Outcome::Granted(*token))
            }
            Reply::TimedOut { owner, key } => (owner, key, Outcome::TimedOut),
            Reply::Busy { owner, key } => (owner, key, Outcome::Busy),
            Reply::Released { token, key } | Reply::NotHeld { token, key } => {
                self.release_answer(reply, key, *token, now);
                return None;
            }
            Reply::Place { .. } | Reply::Moved(_) | Reply::Leader(_) | Reply::Error(_) => {
                self.session.strays.push(reply.clone());
                return None;
            }
        };
        if let Some(index) = self.open_acquires.remove(&(key.clone(), *owner)) {
            self.session.acquires[index].outcome = Some((outcome, now));
            Some(outcome)
        } else {
            self.session.strays.push(reply.clone());
            None
        }
    }

    fn release_answer(&mut self, reply: &Reply, key: &[u8], token: u64, now: Instant) {
        let open = self.open_releases.get_mut(&(key.to_vec(), token)).filter(|open| !open.is_empty());
        match open {
            Some(open) => {
                let index = open.remove(0);
                self.session.releases[index].outcome = Some((matches!(reply, Reply::Released { .. }), now));
            }
            None => self.session.strays.push(reply.clone()),
        }
    }

    /// How many acquires are still to be answered.
    #[must_use]
    pub fn open_acquires(&self) -> usize {
        self.open_acquires.len()
    }

    /// Whether anything is still to be answered.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open_acquires.is_empty() && self.open_releases.values().all(Vec::is_empty)
    }

    /// The end: the connection is closed, and was `cut_short` by its client or not.
    #[must_use]
    pub fn finish(self, cut_short: bool) -> Session {
        Session { cut_short, ..self.session }
    }
}
