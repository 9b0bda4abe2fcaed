//! What one connection sent and was told, and when.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ticketing_history::{Call, Event, History, Lane, Nanos, Note, Op, Outcome, Returned, SECOND};
use ticketing_test_support::{Reply, wire};

/// Now, on the one clock of all recorders.
pub(crate) fn now() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    SECOND + u64::try_from(START.elapsed().as_nanos()).unwrap_or(Nanos::MAX / 2)
}

/// Notes the life of one connection, and binds each answer to its request.
#[derive(Debug)]
pub struct Recorder {
    connection: u64,
    history: History,
    open_acquires: HashMap<(Vec<u8>, u64), usize>,
    /// Releases of one key and token are answered in their order.
    open_releases: HashMap<(Vec<u8>, u64), VecDeque<usize>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// A connection on which nothing was sent yet.
    #[must_use]
    pub fn new() -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

        Self {
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            history: History::default(),
            open_acquires: HashMap::new(),
            open_releases: HashMap::new(),
        }
    }

    fn ask(&mut self, key: &[u8], call: Call) -> usize {
        let (connection, order) = (self.connection, self.history.ops.len() as u64);
        self.history.ops.push(Op {
            id: connection << 32 | order,
            process: connection,
            lane: Some(Lane { connection, order }),
            key: String::from_utf8_lossy(key).into_owned(),
            call,
            invoked: now(),
            returned: None,
        });
        self.history.ops.len() - 1
    }

    /// Notes an acquire that is about to be sent; returns its bytes.
    pub fn acquire(&mut self, key: &[u8], owner: u64, wait_secs: u8, lease_secs: u8) -> Vec<u8> {
        let op = self.ask(key, Call::acquire(wait_secs, lease_secs));
        self.open_acquires.insert((key.to_vec(), owner), op);
        wire::acquire(key, owner, wait_secs, lease_secs)
    }

    /// Notes a cancel that is about to be sent; returns its bytes.
    pub fn cancel(&mut self, key: &[u8], owner: u64) -> Vec<u8> {
        if let Some(&op) = self.open_acquires.get(&(key.to_vec(), owner))
            && let Call::Acquire { cancelled, .. } = &mut self.history.ops[op].call
        {
            *cancelled = true;
        }
        wire::cancel(key, owner)
    }

    /// Notes a release that is about to be sent; returns its bytes.
    pub fn release(&mut self, key: &[u8], token: u64) -> Vec<u8> {
        let op = self.ask(key, Call::Release { token });
        self.open_releases.entry((key.to_vec(), token)).or_default().push_back(op);
        wire::release(key, token)
    }

    /// Notes an answer that has just been read; returns the token if it is a grant.
    pub fn answer(&mut self, reply: &Reply) -> Option<u64> {
        let at = now();
        let Some((op, outcome)) = self.bind(reply) else {
            let event = Event::Stray { text: format!("{reply:?} on connection {}", self.connection) };
            self.history.notes.push(Note { from: at, to: at, event });
            return None;
        };
        self.history.ops[op].returned = Some(Returned { at, outcome });
        if let Outcome::Granted { token, .. } = outcome { Some(token) } else { None }
    }

    /// The request that it answers, and how.
    fn bind(&mut self, reply: &Reply) -> Option<(usize, Outcome)> {
        let key = reply.key().unwrap_or_default().to_vec();
        match *reply {
            Reply::Granted { token, owner, .. } => {
                let op = self.open_acquires.remove(&(key, owner))?;
                let Call::Acquire { lease_secs, .. } = self.history.ops[op].call else { return None };
                // One machine has one clock: nothing is lost to its drift.
                let ends = Some(self.history.ops[op].invoked + u64::from(lease_secs) * SECOND);
                Some((op, Outcome::Granted { token, ends }))
            }
            Reply::GrantedUntil { token, owner, ends_ms, .. } => {
                let op = self.open_acquires.remove(&(key, owner))?;
                let ends = Some(self.history.ops[op].invoked + u64::from(ends_ms) * (SECOND / 1000));
                Some((op, Outcome::Granted { token, ends }))
            }
            Reply::TimedOut { owner, .. } => {
                Some((self.open_acquires.remove(&(key, owner))?, Outcome::TimedOut))
            }
            Reply::Busy { owner, .. } => Some((self.open_acquires.remove(&(key, owner))?, Outcome::Busy)),
            Reply::Released { token, .. } => {
                Some((self.open_releases.get_mut(&(key, token))?.pop_front()?, Outcome::Released))
            }
            Reply::NotHeld { token, .. } => {
                let not_held = Outcome::NotHeld { retried: false };
                Some((self.open_releases.get_mut(&(key, token))?.pop_front()?, not_held))
            }
            Reply::Place { .. } | Reply::Moved(_) | Reply::Leader(_) | Reply::Error(_) => None,
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
        self.open_acquires.is_empty() && self.open_releases.values().all(VecDeque::is_empty)
    }

    /// The end: the connection is closed. What was not answered never will be; if the
    /// client `hung_up`, that is its own doing.
    #[must_use]
    pub fn finish(mut self, hung_up: bool) -> History {
        if hung_up {
            for op in self.history.ops.iter_mut().filter(|op| op.returned.is_none()) {
                op.returned = Some(Returned { at: now(), outcome: Outcome::Indeterminate });
            }
        }
        self.history
    }
}
