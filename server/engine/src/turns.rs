//! What was decided, turn by turn, until the last answer of it is given out.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::connections::Connections;
use crate::engine::unknown;
use crate::hash::Seed;
use crate::tape::{Keyed as _, Tape};
use crate::{Answer, ConnId, Effect, Seq};

/// The effects of one turn: one entry of the log, applied whole or not at all.
///
/// It may be empty: a barrier, which makes sure that this node still leads
/// before it says something definite.
#[derive(Debug, Default)]
pub struct Batch {
    seq: Seq,
    effects: Tape<Effect<'static>>,
}

impl Batch {
    /// Number of the batch, 1 for an engine's first, then dense.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The effects, in the order in which they are to be applied.
    pub fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        self.effects.iter().map(|(effect, key)| effect.with_key(key))
    }
}

/// An answer on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) connection: ConnId,
    pub(crate) answer: Answer<'static>,
    pub(crate) then: Then,
}

/// What an answer waits for, and what begins when its turn has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Waits for nothing.
    Free,
    /// Says nothing about the table, but goes no sooner than an answer of its turn
    /// to the same connection about the same key.
    Behind,
    /// Waits for the commit.
    Gated,
    /// Waits for the commit, with which the lease of this lock begins.
    Lease {
        /// Number of the lock.
        lock: u32,
        /// Length, in seconds.
        secs: u8,
    },
    /// Waits for the commit, with which the time of this tombstone begins.
    Tombstone,
}

impl Then {
    fn is_gated(self) -> bool {
        match self {
            Self::Free | Self::Behind => false,
            Self::Lease { .. } => !fault!(AnswersBeforeTheCommit),
            Self::Gated | Self::Tombstone => true,
        }
    }
}

#[derive(Debug, Default)]
struct Turn {
    seq: Seq,
    answers: Tape<Pending>,
    /// Answers that wait for the commit.
    gated: usize,
    /// To which connection and about which key they are, by a hash of both, until all
    /// have gone: a collision makes an answer wait a little, no more.
    gates: HashTable<u64>,
    /// Answers that wait for nothing and have not gone.
    free: usize,
    /// It has committed, but the fate of one before it was not known when this was told.
    committed: bool,
    /// Its fate is known: every answer may go.
    settled: bool,
}

/// The turn that is being decided and those whose answers are still owed.
#[derive(Debug)]
pub(crate) struct Turns {
    effects: Tape<Effect<'static>>,
    open: Turn,
    sealed: VecDeque<Turn>,
    last_seq: Seq,
    /// The earliest batch that was not applied, as far as anybody knows.
    lost: Option<Seq>,
    /// Nothing that is decided from now on waits for a turn whose fate is open.
    abandoned: bool,
    seed: Seed,
    /// Buffers of past turns, for the next ones.
    spare_turns: Vec<Turn>,
    spare_effects: Vec<Tape<Effect<'static>>>,
}

/// Larger sets of gates are not kept for reuse.
const KEPT_GATES: usize = 4096;

/// How many buffers are kept for reuse.
const SPARES: usize = 8;

impl Turns {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            effects: Tape::default(),
            open: Turn::default(),
            sealed: VecDeque::new(),
            last_seq: 0,
            lost: None,
            abandoned: false,
            seed,
            spare_turns: Vec::new(),
            spare_effects: Vec::new(),
        }
    }

    pub(crate) fn propose(&mut self, effect: Effect<'_>) {
        self.effects.push(effect.with_key(&[]), effect.key());
    }

    pub(crate) fn answer(
        &mut self,
        connections: &mut Connections,
        connection: ConnId,
        answer: Answer<'_>,
        then: Then,
    ) {
        connections.owe(connection);
        if then.is_gated() {
            self.open.shut_gate(self.seed.of_connection(connection, answer.key()));
        }
        self.open.add(connection, answer, then);
    }

    /// Answers a request at its arrival, not before what was decided earlier for
    /// the same connection and key.
    pub(crate) fn answer_at_once(
        &mut self,
        connections: &mut Connections,
        connection: ConnId,
        answer: Answer<'_>,
    ) {
        connections.owe(connection);
        let gate = self.seed.of_connection(connection, answer.key());
        if self.open.has_gate(gate) {
            return self.open.add(connection, answer, Then::Behind);
        }
        // Few turns are in flight at a time.
        let mut waiting = self.sealed.iter_mut().rev().filter(|turn| !turn.settled && !self.abandoned);
        match waiting.find(|turn| turn.has_gate(gate)) {
            Some(turn) => turn.add(connection, answer, Then::Behind),
            None => self.open.add(connection, answer, Then::Free),
        }
    }

    /// Ends the turn. `None`: nothing in it needs the log.
    pub(crate) fn seal(&mut self) -> Option<Batch> {
        if self.effects.is_empty() && self.open.gated == 0 {
            return None;
        }
        self.last_seq += 1;
        self.open.seq = self.last_seq;
        let mut next = self.spare_turns.pop().unwrap_or_default();
        (next.committed, next.settled) = (false, false);
        self.sealed.push_back(std::mem::replace(&mut self.open, next));
        let effects = std::mem::replace(&mut self.effects, self.spare_effects.pop().unwrap_or_default());
        Some(Batch { seq: self.last_seq, effects })
    }

    /// Gives the buffers of a batch back.
    pub(crate) fn recycle(&mut self, mut batch: Batch) {
        if self.spare_effects.len() < SPARES {
            batch.effects.clear();
            self.spare_effects.push(batch.effects);
        }
    }

    /// A batch has committed. Its answers may go once all before it have, which is
    /// what [`Turns::settle_next`] sees to.
    pub(crate) fn commit(&mut self, seq: Seq) {
        let is_out_of_order = self.lost.is_some_and(|lost| lost < seq);
        let Some(turn) = self.waiting(seq) else { return };
        if is_out_of_order {
            turn.settle_as(unknown);
        } else {
            turn.committed = true;
        }
    }

    /// Lets the answers of the oldest turn that waits for its fate go, if it has
    /// committed. Returns its place, for [`Turns::pending`].
    pub(crate) fn settle_next(&mut self) -> Option<usize> {
        let place = self.sealed.iter().position(|turn| !turn.settled)?;
        let turn = self.sealed.get_mut(place).filter(|turn| turn.committed)?;
        turn.settled = true;
        Some(place)
    }

    /// A batch was not applied, or nobody knows: its answers go as others than were
    /// meant, and so do those of later ones that were said to have committed. Returns
    /// whether its fate was open.
    pub(crate) fn lose(&mut self, seq: Seq, instead: impl Fn(Answer<'static>) -> Answer<'static>) -> bool {
        let Some(turn) = self.waiting(seq) else { return false };
        turn.settle_as(instead);
        self.lost = Some(self.lost.map_or(seq, |lost| lost.min(seq)));
        let later = self.sealed.iter_mut().filter(|turn| turn.seq > seq);
        later.filter(|turn| turn.committed && !turn.settled).for_each(|turn| turn.settle_as(unknown));
        true
    }

    /// Lock and token of each committed grant whose answer to this connection has
    /// not gone out. A caller that drains after every commit makes this a short look.
    pub(crate) fn committed_grants(&self, connection: ConnId) -> Vec<(u32, u64)> {
        let answers = self.sealed.iter().filter(|turn| turn.settled).flat_map(|turn| turn.answers.iter());
        answers
            .filter(|(pending, _)| pending.connection == connection)
            .filter_map(|(pending, _)| match (pending.then, pending.answer) {
                (Then::Lease { lock, .. }, Answer::Granted { token, .. }) => Some((lock, token)),
                _ => None,
            })
            .collect()
    }

    /// The answer at `index` of the turn at `place`, with its key.
    pub(crate) fn pending(&self, place: usize, index: usize) -> Option<(Pending, &[u8])> {
        let (pending, key) = self.sealed.get(place)?.answers.get(index)?;
        Some((*pending, key))
    }

    /// Throws the effects of the open turn away and answers as if it had been
    /// refused. From now on nothing waits for a turn whose fate is open.
    pub(crate) fn abandon(&mut self, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        self.effects.clear();
        self.open.replace_gated(instead);
        self.open.open_gates();
        self.abandoned = true;
    }

    /// Whether an answer to this connection about this key waits, for a commit or
    /// because it is held back.
    pub(crate) fn owes(&self, connection: ConnId, key: &[u8]) -> bool {
        let gate = self.seed.of_connection(connection, key);
        self.sealed.iter().any(|turn| turn.has_gate(gate))
    }

    /// Gives out every answer that may go: those of settled turns, the oldest
    /// first, then those that wait for nothing. What is held back stays.
    pub(crate) fn drain(
        &mut self,
        connections: &mut Connections,
        held_back: impl Fn(ConnId, &[u8]) -> bool,
        mut out: impl FnMut(ConnId, Answer<'_>),
    ) {
        let may_go = |pending: &Pending, key: &[u8]| !held_back(pending.connection, key);
        let is_free = |pending: &Pending, key: &[u8]| pending.then == Then::Free && may_go(pending, key);
        for turn in self.sealed.iter_mut().filter(|turn| turn.settled) {
            turn.give(connections, &mut out, may_go);
        }
        for turn in self.sealed.iter_mut().filter(|turn| !turn.settled && turn.free > 0) {
            turn.give(connections, &mut out, is_free);
        }
        if self.open.free > 0 {
            self.open.give(connections, &mut out, is_free);
        }
        while let Some(turn) = self.sealed.pop_front_if(|turn| turn.settled && turn.answers.is_empty()) {
            if self.spare_turns.len() < SPARES {
                self.spare_turns.push(turn);
            }
        }
    }

    /// How many sealed turns have answers that have not gone.
    pub(crate) fn pending_turns(&self) -> usize {
        self.sealed.iter().filter(|turn| !turn.settled || !turn.answers.is_empty()).count()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending_turns() == 0 && self.effects.is_empty() && self.open.answers.is_empty()
    }

    /// The turn of this number, if nothing was told of its fate.
    fn waiting(&mut self, seq: Seq) -> Option<&mut Turn> {
        let first = self.sealed.front()?.seq;
        let place = usize::try_from(seq.checked_sub(first)?).ok()?;
        self.sealed.get_mut(place).filter(|turn| !turn.committed && !turn.settled)
    }
}

impl Turn {
    fn add(&mut self, connection: ConnId, answer: Answer<'_>, then: Then) {
        self.gated += usize::from(then.is_gated());
        self.free += usize::from(then == Then::Free);
        let pending = Pending { connection, answer: answer.with_key(&[]), then };
        self.answers.push(pending, answer.key());
    }

    /// Gives out the answers that are wanted and drops them.
    fn give(
        &mut self,
        connections: &mut Connections,
        out: &mut impl FnMut(ConnId, Answer<'_>),
        wanted: impl Fn(&Pending, &[u8]) -> bool,
    ) {
        let mut given = 0;
        for (pending, key) in self.answers.iter().filter(|(pending, key)| wanted(pending, key)) {
            given += 1;
            if connections.pay(pending.connection) {
                out(pending.connection, pending.answer.with_key(key));
            }
        }
        if given == self.answers.len() {
            self.answers.clear();
            (self.gated, self.free) = (0, 0);
            self.open_gates();
        } else if given > 0 {
            self.answers.retain(|pending, key| !wanted(pending, key));
            self.free = self.answers.iter().filter(|(pending, _)| pending.then == Then::Free).count();
        }
    }

    fn settle_as(&mut self, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        self.settled = true;
        self.replace_gated(instead);
    }

    /// Frees every answer and turns those that waited for the commit into others.
    fn replace_gated(&mut self, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        for pending in self.answers.values_mut() {
            if pending.then.is_gated() {
                pending.answer = instead(pending.answer);
            }
            pending.then = Then::Free;
        }
        self.free = self.answers.len();
        self.gated = 0;
    }

    fn has_gate(&self, gate: u64) -> bool {
        self.gates.find(gate, |&other| other == gate).is_some()
    }

    fn shut_gate(&mut self, gate: u64) {
        if !self.has_gate(gate) {
            self.gates.insert_unique(gate, gate, |&other| other);
        }
    }

    /// Nothing waits behind the answers of this turn any more.
    fn open_gates(&mut self) {
        if self.gates.capacity() > KEPT_GATES {
            self.gates = HashTable::new();
        }
        self.gates.clear();
    }
}
