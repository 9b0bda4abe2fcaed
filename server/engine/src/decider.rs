//! All engines of one node: the one that decides, and those that no longer do but
//! still owe answers.

use crate::{Answer, Batch, Config, ConnId, Engine, Fate, Input, Nanos, Office, Seq, Stats};

/// Who decides on a node.
///
/// A node that does not lead stands by: it tells every acquire that it was not
/// granted, and everybody else that this node does not lead. When the node takes
/// office, an engine decides. When it loses it, that engine ends, and only the
/// fates of its last batches are still waited for.
///
/// ```
/// use ticketing_engine::{Config, Decider, Engine, Fate, Input, Office};
///
/// let mut decider = Decider::new(Config::default());
/// let office = Office { term: 1, run: 1 };
/// decider.take_office(0, office, Engine::new(Config::default()));
/// # let (now, input) = (0, Input::Tick);
/// decider.handle(now, input);
/// while let Some((office, batch)) = decider.seal() {
///     // The log has it: then its answers may go.
///     decider.settle(now, office, batch.seq(), Fate::Applied);
///     decider.recycle(batch);
/// }
/// decider.drain(|connection, answer| println!("to {connection:?}: {answer:?}"));
/// ```
#[derive(Debug)]
pub struct Decider {
    office: Option<Office>,
    /// Decides while there is an office, and says that it does not otherwise.
    engine: Engine,
    /// The office that the engine was in, if it ever was in one.
    engine_office: Option<Office>,
    /// Engines of past offices that are owed the fate of a batch.
    past: Vec<(Office, Engine)>,
    /// What all engines before this one have done.
    done: Stats,
}

impl Decider {
    /// A node that stands by.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut engine = Engine::new(config);
        engine.retire();
        Self { office: None, engine, engine_office: None, past: Vec::new(), done: Stats::default() }
    }

    /// The office that this node is in.
    #[must_use]
    pub const fn office(&self) -> Option<Office> {
        self.office
    }

    /// From now on this engine decides.
    pub fn take_office(&mut self, now: Nanos, office: Office, engine: Engine) {
        self.leave_office(now);
        let before = std::mem::replace(&mut self.engine, engine);
        self.done = self.done.and_then(before.stats());
        if let Some(past) = self.engine_office.replace(office)
            && !before.is_idle()
        {
            self.past.push((past, before));
        }
        self.office = Some(office);
    }

    /// From now on nothing is decided here.
    pub fn leave_office(&mut self, now: Nanos) {
        self.engine.handle(now, Input::Retire);
        self.office = None;
    }

    /// Takes note of what happened at `now`; see [`Engine::handle`].
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        match input {
            // A grant of a past office may be on its way to it.
            Input::Leaving(_) | Input::Closed(_) => {
                self.engines().for_each(|engine| engine.handle(now, input))
            }
            Input::Request(..)
            | Input::Undelivered { .. }
            | Input::Tick
            | Input::Committed(_)
            | Input::Refused(_)
            | Input::Unknown(_)
            | Input::TokenCeiling(_)
            | Input::Drain
            | Input::Retire => self.engine.handle(now, input),
        }
    }

    /// Says which keys the next requests are about; see [`Engine::expect`].
    pub fn expect<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.engine.expect(keys);
    }

    /// Takes note of the fate of a batch. A batch of the office that holds which
    /// was not applied ends that office: everything that was decided since stands
    /// on it. [`Decider::office`] is `None` then, and the node may take another one.
    pub fn settle(&mut self, now: Nanos, office: Office, seq: Seq, fate: Fate) {
        let input = match fate {
            Fate::Applied => Input::Committed(seq),
            Fate::Refused => Input::Refused(seq),
            Fate::Unknown => Input::Unknown(seq),
        };
        if self.engine_office != Some(office) {
            let past = self.past.iter_mut().find(|(past, _)| *past == office);
            return past.into_iter().for_each(|(_, engine)| engine.handle(now, input));
        }
        if fate != Fate::Applied {
            self.leave_office(now);
        }
        self.engine.handle(now, input);
    }

    /// Ends the turn and returns what must be proposed.
    pub fn seal(&mut self) -> Option<(Office, Batch)> {
        let office = self.office?;
        Some((office, self.engine.seal()?))
    }

    /// Takes the buffers of a batch back for reuse.
    pub fn recycle(&mut self, batch: Batch) {
        self.engine.recycle(batch);
    }

    /// Gives out every answer that may go now, those of past offices first.
    pub fn drain(&mut self, mut out: impl FnMut(ConnId, Answer<'_>)) {
        self.past.iter_mut().for_each(|(_, engine)| engine.drain(&mut out));
        self.past.retain(|(_, engine)| !engine.is_idle());
        self.engine.drain(out);
    }

    /// Whether an answer to this connection was decided and has not gone.
    #[must_use]
    pub fn owes_any(&self, connection: ConnId) -> bool {
        self.engine.owes_any(connection) || self.past.iter().any(|(_, engine)| engine.owes_any(connection))
    }

    /// Batches whose fate is still to come.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.engine.pending() + self.past.iter().map(|(_, engine)| engine.pending()).sum::<usize>()
    }

    /// When [`Input::Tick`] has something to do; `None`: not before another input.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.engine.next_deadline()
    }

    /// The next token to be given out; see [`Engine::next_token`].
    #[must_use]
    pub fn next_token(&self) -> u64 {
        self.engine.next_token()
    }

    /// What this node has done in all its offices, and what it holds now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.done.and_then(self.engine.stats())
    }

    fn engines(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.past.iter_mut().map(|(_, engine)| engine).chain([&mut self.engine])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    const FIRST: Office = Office { term: 1, run: 1 };
    const SECOND: Office = Office { term: 3, run: 1 };

    fn acquire(decider: &mut Decider, conn: u64, key: &[u8]) {
        let request = Request::Acquire { wait_secs: 9, lease_secs: 9, owner: conn, key, received: 0 };
        decider.handle(0, Input::Request(ConnId(conn), request));
    }

    fn answers(decider: &mut Decider) -> Vec<(u64, &'static str)> {
        let mut answers = Vec::new();
        decider.drain(|conn, answer| {
            answers.push((
                conn.0,
                match answer {
                    Answer::Granted { .. } => "granted",
                    Answer::Busy { .. } => "busy",
                    Answer::NotLeader => "not leader",
                    Answer::CloseUnknown => "close",
                    Answer::TimedOut { .. }
                    | Answer::Released { .. }
                    | Answer::NotHeld { .. }
                    | Answer::Place { .. }
                    | Answer::Verified { .. }
                    | Answer::VerifiedBusy { .. }
                    | Answer::CloseOverloaded => "else",
                },
            ));
        });
        answers
    }

    fn in_office() -> Decider {
        let mut decider = Decider::new(Config::default());
        decider.take_office(0, FIRST, Engine::new(Config::default()));
        decider
    }

    #[test]
    fn who_stands_by_decides_nothing() {
        let mut decider = Decider::new(Config::default());
        acquire(&mut decider, 1, b"k");
        let release = Request::Release { token: 1, key: b"k" };
        decider.handle(0, Input::Request(ConnId(2), release));
        assert!(decider.seal().is_none());
        assert_eq!(answers(&mut decider), [(1, "busy"), (2, "not leader")]);
    }

    #[test]
    fn a_batch_of_a_past_office_still_finds_its_engine() {
        let mut decider = in_office();
        acquire(&mut decider, 1, b"k");
        acquire(&mut decider, 2, b"k");
        let (office, batch) = decider.seal().unwrap();
        decider.leave_office(0);
        assert_eq!(answers(&mut decider), [(2, "busy")], "who was never proposed is told at once");
        decider.take_office(0, SECOND, Engine::new(Config::default()));
        acquire(&mut decider, 3, b"other");
        let (_, second) = decider.seal().unwrap();
        decider.settle(0, office, batch.seq(), Fate::Applied);
        assert_eq!(answers(&mut decider), [(1, "granted")]);
        decider.settle(0, SECOND, second.seq(), Fate::Applied);
        assert_eq!(answers(&mut decider), [(3, "granted")]);
        assert!(decider.past.is_empty());
        assert_eq!(decider.office(), Some(SECOND));
        assert_eq!(decider.stats().granted, 2, "of both offices");
    }

    #[test]
    fn a_batch_that_was_not_applied_ends_the_office() {
        for (fate, told) in [(Fate::Refused, "busy"), (Fate::Unknown, "close")] {
            let mut decider = in_office();
            acquire(&mut decider, 1, b"k");
            let (office, first) = decider.seal().unwrap();
            acquire(&mut decider, 2, b"l");
            let (_, second) = decider.seal().unwrap();
            acquire(&mut decider, 3, b"k");
            decider.settle(0, office, first.seq(), fate);
            assert_eq!(decider.office(), None);
            let mut now = answers(&mut decider);
            now.sort_unstable();
            assert_eq!(now, [(1, told), (3, "busy")]);
            acquire(&mut decider, 4, b"m");
            assert!(decider.seal().is_none());
            decider.settle(0, office, second.seq(), Fate::Refused);
            assert_eq!(answers(&mut decider), [(2, "busy"), (4, "busy")]);
        }
    }
}
