//! What was decided, turn by turn, until it has been said.

use std::collections::BTreeSet;

use ticketing_engine::{Answer, ConnId, Effect, Seq};

use super::Key;

/// An answer that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) to: ConnId,
    pub(crate) answer: Answer<'static>,
    /// One of the refusals of everybody at a drain or a retirement, which come in
    /// any order between keys: the number of that event.
    pub(crate) sweep: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Decided {
    said: Said,
    key: Key,
    leaves: Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    AtOnce,
    /// With the turn, whatever becomes of it: only so as not to overtake a gated answer.
    WithTurn,
    /// With the turn, and it stays true only if that commits: a gated answer.
    OnceCommitted,
}

#[derive(Debug, Default)]
struct Turn {
    /// `None`: not sealed yet.
    seq: Option<Seq>,
    /// Its commit was told.
    committed: bool,
    /// Whether its fate is known, and that of every turn before it if it committed.
    settled: bool,
    effects: Vec<Effect<'static>>,
    answers: Vec<Decided>,
}

#[derive(Debug)]
pub(super) struct Turns {
    /// Oldest first; the last one is open.
    turns: Vec<Turn>,
    sealed: Seq,
    /// Batches that were refused or stay unknown.
    lost: BTreeSet<Seq>,
    sweeps: u32,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turns: vec![Turn::default()], sealed: 0, lost: BTreeSet::new(), sweeps: 0 }
    }

    pub(super) fn effect(&mut self, effect: Effect<'static>) {
        self.open().effects.push(effect);
    }

    pub(super) fn say(&mut self, to: ConnId, key: Key, answer: Answer<'static>, leaves: Leaves) {
        let decided = Decided { said: Said { to, answer, sweep: None }, key, leaves };
        let gate = |turn: &&mut Turn| {
            turn.answers
                .iter()
                .any(|earlier| earlier.is_gated() && (earlier.said.to, earlier.key) == (to, key))
        };
        let turn = match leaves {
            Leaves::WithTurn => self.turns.iter_mut().rfind(gate),
            Leaves::AtOnce | Leaves::OnceCommitted => None,
        };
        match turn {
            Some(turn) => turn.answers.push(decided),
            None if decided.is_gated() => self.open().answers.push(decided),
            None => self.open().answers.push(Decided { leaves: Leaves::AtOnce, ..decided }),
        }
    }

    /// All that is said meanwhile is one sweep.
    pub(super) fn begin_sweep(&mut self) -> usize {
        self.sweeps += 1;
        self.open().answers.len()
    }

    pub(super) fn end_sweep(&mut self, begun: usize) {
        let sweep = Some(self.sweeps);
        for decided in &mut self.open().answers[begun..] {
            decided.said.sweep = sweep;
        }
    }

    /// Closes the turn if anything of it needs the log.
    pub(super) fn seal(&mut self) -> Option<(Seq, Vec<Effect<'static>>)> {
        let seq = self.sealed + 1;
        let open = self.open();
        // A gated answer asks for the commit even if its connection is gone by now.
        if open.effects.is_empty() && !open.answers.iter().any(Decided::is_gated) {
            return None;
        }
        open.seq = Some(seq);
        let effects = open.effects.clone();
        self.turns.push(Turn::default());
        self.sealed = seq;
        Some((seq, effects))
    }

    /// A batch is said to have committed.
    pub(super) fn commit(&mut self, seq: Seq) {
        let contradicts = self.lost.iter().any(|&lost| lost < seq);
        match self.waiting(seq) {
            Some(turn) if contradicts => turn.settle(unknown),
            Some(turn) => turn.committed = true,
            None => {}
        }
    }

    /// The effects of the next batch in order, if it has committed: its answers may leave.
    pub(super) fn settle_next(&mut self) -> Option<Vec<Effect<'static>>> {
        let next = self.turns.iter_mut().find(|turn| !turn.settled)?;
        if !next.committed {
            return None;
        }
        next.settle(|_, answer| answer);
        Some(next.effects.clone())
    }

    /// A batch was not applied, or nobody knows: its answers leave as `word` puts them.
    /// Returns whether anybody waited to hear.
    pub(super) fn lose(&mut self, seq: Seq, word: impl Fn(Key, Answer<'static>) -> Answer<'static>) -> bool {
        let Some(turn) = self.waiting(seq) else { return false };
        turn.settle(word);
        self.lost.insert(seq);
        for turn in &mut self.turns {
            if turn.seq > Some(seq) && turn.committed && !turn.settled {
                turn.settle(unknown);
            }
        }
        true
    }

    /// Batches whose fate is open or whose answers have not left.
    pub(super) fn pending(&self) -> usize {
        let sealed = self.turns.iter().filter(|turn| turn.seq.is_some());
        sealed.filter(|turn| !turn.settled || !turn.answers.is_empty()).count()
    }

    /// Nothing is to be sealed either.
    pub(super) fn is_idle(&self) -> bool {
        let open = self.turns.last().unwrap();
        self.pending() == 0 && open.effects.is_empty() && open.answers.is_empty()
    }

    /// The turn of a batch of which nothing was told.
    fn waiting(&mut self, seq: Seq) -> Option<&mut Turn> {
        self.turns.iter_mut().find(|turn| turn.seq == Some(seq) && !turn.committed && !turn.settled)
    }

    /// The open turn will never be proposed.
    pub(super) fn abandon(&mut self, word: impl Fn(Key, Answer<'static>) -> Answer<'static>) {
        self.open().effects.clear();
        self.open().free(word);
    }

    /// What may be said now: all of the turns whose fate is known, then what need
    /// not wait of the others; each in the order in which it was decided.
    pub(super) fn drain(&mut self, closed: &BTreeSet<ConnId>) -> Vec<Said> {
        let mut said = Vec::new();
        for settled in [true, false] {
            for turn in self.turns.iter_mut().filter(|turn| turn.settled == settled) {
                let leaving = turn.answers.extract_if(.., |decided| decided.leaves == Leaves::AtOnce);
                said.extend(leaving.map(|decided| decided.said));
            }
        }
        said.retain(|said| !closed.contains(&said.to));
        self.turns.retain(|turn| !turn.settled);
        said
    }

    /// Grants to a connection that have not committed.
    pub(super) fn grants_in_flight(&self, conn: ConnId) -> usize {
        let answers = self.turns.iter().flat_map(|turn| &turn.answers);
        answers
            .filter(|decided| decided.said.to == conn && decided.is_gated())
            .filter(|decided| matches!(decided.said.answer, Answer::Granted { .. }))
            .count()
    }

    /// Grants that have committed, but of which their connection, which closed, was not told.
    pub(super) fn undelivered(&self, closed: &BTreeSet<ConnId>) -> Vec<(u64, Key)> {
        let answers = self.turns.iter().filter(|turn| turn.settled).flat_map(|turn| &turn.answers);
        answers
            .filter(|decided| closed.contains(&decided.said.to))
            .filter_map(|decided| match decided.said.answer {
                Answer::Granted { token, .. } => Some((token, decided.key)),
                _ => None,
            })
            .collect()
    }

    fn open(&mut self) -> &mut Turn {
        self.turns.last_mut().unwrap()
    }
}

impl Turn {
    fn settle(&mut self, word: impl Fn(Key, Answer<'static>) -> Answer<'static>) {
        self.settled = true;
        self.free(word);
    }

    fn free(&mut self, word: impl Fn(Key, Answer<'static>) -> Answer<'static>) {
        for decided in &mut self.answers {
            if decided.is_gated() {
                decided.said.answer = word(decided.key, decided.said.answer);
            }
            decided.leaves = Leaves::AtOnce;
        }
    }
}

fn unknown(_: Key, _: Answer<'static>) -> Answer<'static> {
    Answer::CloseUnknown
}

impl Decided {
    fn is_gated(&self) -> bool {
        self.leaves == Leaves::OnceCommitted
    }
}
