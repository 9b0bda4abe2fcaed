//! What was decided, turn by turn, until the last answer of it is given out.

use std::collections::VecDeque;

use crate::connections::Connections;
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

#[derive(Debug, Default)]
struct Turn {
    seq: Seq,
    answers: Tape<Pending>,
    gated: usize,
    /// Its fate is known: every answer may go.
    settled: bool,
    /// The answers that wait for nothing have gone.
    skimmed: bool,
}

/// The turn that is being decided and those whose answers are still owed.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    effects: Tape<Effect<'static>>,
    open: Turn,
    sealed: VecDeque<Turn>,
    last_seq: Seq,
    /// Buffers of past turns, for the next ones.
    spare_turns: Vec<Turn>,
    spare_effects: Vec<Tape<Effect<'static>>>,
}

/// How many buffers are kept for reuse.
const SPARES: usize = 8;

impl Turns {
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
        self.open.gated += usize::from(then != Then::Free);
        let pending = Pending { connection, answer: answer.with_key(&[]), then };
        self.open.answers.push(pending, answer.key());
    }

    /// Ends the turn. `None`: nothing in it needs the log.
    pub(crate) fn seal(&mut self) -> Option<Batch> {
        if self.effects.is_empty() && self.open.gated == 0 {
            return None;
        }
        self.last_seq += 1;
        self.open.seq = self.last_seq;
        let next = self.spare_turns.pop().unwrap_or_default();
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

    /// Lets the answers of a turn go. Returns its place, for [`Turns::pending`].
    pub(crate) fn settle(&mut self, seq: Seq) -> Option<usize> {
        let place = self.sealed.iter().position(|turn| turn.seq == seq && !turn.settled)?;
        self.sealed[place].settled = true;
        Some(place)
    }

    /// The answer at `index` of the turn at `place`, with its key.
    pub(crate) fn pending(&self, place: usize, index: usize) -> Option<(Pending, &[u8])> {
        let (pending, key) = self.sealed.get(place)?.answers.get(index)?;
        Some((*pending, key))
    }

    /// Lets the answers of a turn go as others than were meant.
    pub(crate) fn settle_as(&mut self, seq: Seq, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        if let Some(turn) = self.settle(seq).and_then(|place| self.sealed.get_mut(place)) {
            turn.replace_gated(instead);
        }
    }

    /// Throws the effects of the open turn away and answers as if it had been refused.
    pub(crate) fn abandon(&mut self, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        self.effects.clear();
        self.open.replace_gated(instead);
        self.open.gated = 0;
    }

    /// Gives out every answer that may go: those of settled turns, the oldest
    /// first, then those that wait for nothing.
    pub(crate) fn drain(&mut self, connections: &mut Connections, mut out: impl FnMut(ConnId, Answer<'_>)) {
        while let Some(mut turn) = self.sealed.pop_front_if(|turn| turn.settled) {
            turn.give(connections, &mut out, |_| true);
            if self.spare_turns.len() < SPARES {
                turn.clear();
                self.spare_turns.push(turn);
            }
        }
        for turn in self.sealed.iter_mut().filter(|turn| turn.settled || !turn.skimmed) {
            if turn.settled {
                turn.give(connections, &mut out, |_| true);
                turn.answers.clear();
            } else {
                turn.give(connections, &mut out, |then| then == Then::Free);
                turn.answers.retain(|pending| pending.then != Then::Free);
            }
            turn.skimmed = true;
        }
        if self.open.answers.len() > self.open.gated {
            self.open.give(connections, &mut out, |then| then == Then::Free);
            if self.open.gated == 0 {
                self.open.answers.clear();
            } else {
                self.open.answers.retain(|pending| pending.then != Then::Free);
            }
        }
    }
}

impl Turn {
    fn give(
        &self,
        connections: &mut Connections,
        out: &mut impl FnMut(ConnId, Answer<'_>),
        wanted: impl Fn(Then) -> bool,
    ) {
        for (pending, key) in self.answers.iter().filter(|(pending, _)| wanted(pending.then)) {
            if connections.pay(pending.connection) {
                out(pending.connection, pending.answer.with_key(key));
            }
        }
    }

    fn replace_gated(&mut self, instead: impl Fn(Answer<'static>) -> Answer<'static>) {
        for pending in self.answers.values_mut().filter(|pending| pending.then != Then::Free) {
            pending.answer = instead(pending.answer);
            pending.then = Then::Free;
        }
    }

    fn clear(&mut self) {
        self.answers.clear();
        *self = Self { answers: std::mem::take(&mut self.answers), ..Self::default() };
    }
}
