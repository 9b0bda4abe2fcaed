//! The engine as its caller sees it; what it decides is in `decide` and `pass`.

use ticketing_timers::Timers;

use crate::connections::Connections;
use crate::hash::Seed;
use crate::locks::Locks;
use crate::tombstones::Tombstones;
use crate::turns::Turns;
use crate::waiters::Waiters;
use crate::{Answer, Batch, Config, ConnId, Input, Limits, Nanos};

/// Fewer locks are in the processor's cache already.
const WORTH_EXPECTING: usize = 16_384;

/// Whether the engine takes acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Office {
    Serving,
    /// No new acquires; everything else as before.
    Draining,
    /// Nothing more is decided here.
    Retired,
}

/// What an engine has done and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that are held now.
    pub held: u64,
    /// Acquires that are queued now.
    pub waiters: u64,
    /// Tombstones that stand now.
    pub tombstones: u64,
    /// Connections that asked something and are not gone, or are owed an answer.
    pub connections: u64,
    /// Grants decided.
    pub granted: u64,
    /// Releases decided, hand-offs included.
    pub released: u64,
    /// Grants given back because their connection ended before it was told of them;
    /// they count as released too.
    pub given_back: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Waits that ran out, tries of a held key included.
    pub timed_out: u64,
    /// Acquires answered `Busy`.
    pub busy: u64,
    /// Releases of a token that does not hold its key.
    pub not_held: u64,
}

impl Stats {
    /// What was done here and then there, and what is held there.
    pub(crate) const fn and_then(self, later: Self) -> Self {
        Self {
            granted: self.granted + later.granted,
            released: self.released + later.released,
            given_back: self.given_back + later.given_back,
            expired: self.expired + later.expired,
            timed_out: self.timed_out + later.timed_out,
            busy: self.busy + later.busy,
            not_held: self.not_held + later.not_held,
            ..later
        }
    }
}

/// The lock engine. See the [crate's documentation](crate) for how to drive it.
///
/// Its caller runs turns: it handles what has come, seals, sees to it that the
/// batch commits, and drains. [`Input::Committed`] may itself decide something (a
/// grant to a connection that is gone goes on to the next waiter), so a caller
/// whose commits are instant seals until nothing comes out:
///
/// ```
/// use ticketing_engine::{Config, Engine, Input};
/// # let (mut engine, now) = (Engine::new(Config::default()), 0);
/// engine.handle(now, Input::Tick);
/// while let Some(batch) = engine.seal() {
///     engine.handle(now, Input::Committed(batch.seq()));
///     engine.recycle(batch);
/// }
/// engine.drain(|connection, answer| println!("to {connection:?}: {answer:?}"));
/// ```
///
/// One turn gives out at most one token for each input, one for each timer that
/// a tick may run out, and one for each grant of a batch that commits in it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) seed: Seed,
    pub(crate) office: Office,
    pub(crate) locks: Locks,
    pub(crate) leases: Timers<u32>,
    pub(crate) waiters: Waiters,
    pub(crate) connections: Connections,
    pub(crate) tombstones: Tombstones,
    pub(crate) turns: Turns,
    /// `None`: the last token there is has been given out.
    pub(crate) next_token: Option<u64>,
    pub(crate) stats: Stats,
}

impl Engine {
    /// An engine that holds nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let seed = Seed(config.hash_seed);
        Self {
            limits: config.limits,
            seed,
            office: Office::Serving,
            locks: Locks::new(seed),
            leases: Timers::new(),
            waiters: Waiters::new(seed),
            connections: Connections::default(),
            tombstones: Tombstones::new(seed),
            turns: Turns::new(seed),
            next_token: Some(config.next_token.max(1)),
            stats: Stats::default(),
        }
    }

    /// Takes note of what happened at `now`, which never decreases from call to
    /// call, and is no earlier than the receipt of any request that has been
    /// handled: a lease is counted from it.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        match input {
            Input::Request(connection, request) => self.request(now, connection, request),
            Input::Leaving(connection) => self.leave_queues(connection),
            Input::Closed(connection) => self.closed(now, connection),
            Input::Undelivered { token, key } => self.undelivered(now, token, key),
            Input::Tick => self.tick(now),
            Input::Committed(seq) => self.committed(now, seq),
            Input::Refused(seq) => self.lost(seq, refused),
            Input::Unknown(seq) if fault!(UnknownIsRefused) => self.lost(seq, refused),
            Input::Unknown(seq) if fault!(UnknownIsApplied) => self.committed(now, seq),
            Input::Unknown(seq) => self.lost(seq, unknown),
            Input::Drain => self.start_draining(),
            Input::Retire => self.retire(),
        }
    }

    /// Says which keys the next requests are about, which decides nothing but makes
    /// them cheaper: what they need is fetched from memory together.
    pub fn expect<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.locks.len() > WORTH_EXPECTING {
            self.locks.fetch(keys);
        }
    }

    /// Ends the turn and returns what must be replicated; `None`: nothing.
    pub fn seal(&mut self) -> Option<Batch> {
        self.turns.seal()
    }

    /// Takes the buffers of a batch back for reuse.
    pub fn recycle(&mut self, batch: Batch) {
        self.turns.recycle(batch);
    }

    /// Gives out every answer that may go now.
    ///
    /// Answers of one turn come in the order in which they were decided, except
    /// that those which wait for no commit may overtake those which do.
    pub fn drain(&mut self, out: impl FnMut(ConnId, Answer<'_>)) {
        self.drain_unless(|_, _| false, out);
    }

    /// The same, except for answers that are held back: to whom, and about which key.
    pub(crate) fn drain_unless(
        &mut self,
        held_back: impl Fn(ConnId, &[u8]) -> bool,
        out: impl FnMut(ConnId, Answer<'_>),
    ) {
        self.turns.drain(&mut self.connections, held_back, out);
    }

    /// Whether an answer to this connection about this key was decided and has not gone.
    pub(crate) fn owes(&self, connection: ConnId, key: &[u8]) -> bool {
        self.turns.owes(connection, key)
    }

    /// Whether an answer to this connection was decided and has not gone.
    #[must_use]
    pub fn owes_any(&self, connection: ConnId) -> bool {
        self.connections.owes(connection)
    }

    /// When [`Input::Tick`] has something to do; `None`: not before another input.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        [self.waiters.next_deadline(), self.leases.next_deadline(), self.tombstones.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next token to be given out, or `u64::MAX` when all are spent.
    #[must_use]
    pub fn next_token(&self) -> u64 {
        self.next_token.unwrap_or(u64::MAX)
    }

    /// How many sealed batches have answers that are still owed: their fate is not
    /// known yet, or [`Engine::drain`] has not been called since.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.turns.pending_turns()
    }

    /// Whether nothing is owed: no batch waits for its fate, no answer for a
    /// [`drain`](Engine::drain), and there is nothing to seal. An engine that is out of
    /// office and idle has said its last word on all that it decided; it can be dropped.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turns.is_idle()
    }

    /// What it has done and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            held: self.locks.len() as u64,
            waiters: self.waiters.len() as u64,
            tombstones: self.tombstones.len() as u64,
            connections: self.connections.len() as u64,
            ..self.stats
        }
    }
}

/// What becomes of an answer whose batch has a fate that nobody knows.
pub(crate) const fn unknown(_: Answer<'static>) -> Answer<'static> {
    Answer::CloseUnknown
}

/// What becomes of an answer whose batch never was appended.
pub(crate) fn refused(meant: Answer<'static>) -> Answer<'static> {
    match meant {
        Answer::Granted { owner, key, .. } => Answer::Busy { owner, key },
        Answer::TimedOut { .. }
        | Answer::Busy { .. }
        | Answer::Released { .. }
        | Answer::NotHeld { .. }
        | Answer::Place { .. }
        | Answer::Verified { .. }
        | Answer::VerifiedBusy { .. }
        | Answer::NotLeader
        | Answer::CloseUnknown
        | Answer::CloseOverloaded => Answer::NotLeader,
    }
}
