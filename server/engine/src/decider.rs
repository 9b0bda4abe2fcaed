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
    /// Engines that have decided before, in an office or standing by, and have not said
    /// all of it: they are owed the fate of a batch, or a drain.
    past: Vec<(Option<Office>, Engine)>,
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
        let office_before = self.engine_office.replace(office);
        if !before.is_idle() {
            self.past.push((office_before, before));
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
                self.engines().for_each(|engine| engine.handle(now, input));
            }
            Input::Request(..)
            | Input::Undelivered { .. }
            | Input::Tick
            | Input::Committed(_)
            | Input::Refused(_)
            | Input::Unknown(_)
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
            let past = self.past.iter_mut().find(|(past, _)| *past == Some(office));
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
    ///
    /// As long as the fate of a batch of a past office is open, its answers are the
    /// earlier ones: what was decided since for the same connection and key waits.
    pub fn drain(&mut self, mut out: impl FnMut(ConnId, Answer<'_>)) {
        let Self { past, engine, .. } = self;
        for place in 0..past.len() {
            let (earlier, rest) = past.split_at_mut(place);
            if let Some((_, engine)) = rest.first_mut() {
                engine.drain_unless(|connection, key| owe(earlier, connection, key), &mut out);
            }
        }
        past.retain(|(_, engine)| !engine.is_idle());
        engine.drain_unless(|connection, key| owe(past, connection, key), out);
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

/// Whether one of them owes an answer to this connection about this key.
fn owe(engines: &[(Option<Office>, Engine)], connection: ConnId, key: &[u8]) -> bool {
    engines.iter().any(|(_, engine)| engine.owes(connection, key))
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
                    Answer::TimedOut { .. } => "timed out",
                    Answer::NotHeld { .. } => "not held",
                    Answer::Released { .. }
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

    #[test]
    fn what_was_said_standing_by_is_heard_in_office() {
        let mut decider = Decider::new(Config::default());
        acquire(&mut decider, 1, b"k");
        decider.take_office(0, FIRST, Engine::new(Config::default()));
        acquire(&mut decider, 2, b"k");
        assert_eq!(answers(&mut decider), [(1, "busy")]);
        assert!(decider.past.is_empty());
    }

    fn not_held(decider: &mut Decider, conn: u64, key: &[u8]) {
        decider.handle(0, Input::Request(ConnId(conn), Request::Release { token: 9, key }));
    }

    /// A decider in its second office, and the batches of both: that of the first has
    /// granted `k` to connection 1, and its fate is open.
    fn with_a_fate_open(decide: impl FnOnce(&mut Decider)) -> (Decider, Batch, Batch) {
        let mut decider = in_office();
        acquire(&mut decider, 1, b"k");
        let (_, first) = decider.seal().unwrap();
        decider.take_office(0, SECOND, Engine::new(Config::default()));
        decide(&mut decider);
        let (_, second) = decider.seal().unwrap();
        decider.settle(0, SECOND, second.seq(), Fate::Applied);
        (decider, first, second)
    }

    #[test]
    fn nothing_overtakes_an_earlier_office_on_its_connection_about_its_key() {
        for (fate, told) in [(Fate::Applied, "granted"), (Fate::Refused, "busy"), (Fate::Unknown, "close")] {
            let (mut decider, first, _) = with_a_fate_open(|decider| {
                not_held(decider, 1, b"other");
                not_held(decider, 1, b"k");
                not_held(decider, 2, b"k");
            });
            assert_eq!(answers(&mut decider), [(1, "not held"), (2, "not held")], "of other keys, to others");
            // At once, were it not for the one before.
            let request = Request::Acquire { wait_secs: 0, lease_secs: 9, owner: 5, key: b"k", received: 0 };
            acquire(&mut decider, 3, b"k");
            decider.handle(0, Input::Request(ConnId(1), request));
            assert_eq!(answers(&mut decider), []);
            decider.settle(0, FIRST, first.seq(), fate);
            assert_eq!(answers(&mut decider), [(1, told), (1, "not held"), (1, "timed out")]);
            assert!(decider.past.is_empty());
        }
    }

    #[test]
    fn what_waits_for_an_earlier_office_waits_in_its_own_too() {
        let (mut decider, first, _) = with_a_fate_open(|decider| not_held(decider, 1, b"k"));
        assert_eq!(answers(&mut decider), []);
        decider.take_office(0, Office { term: 4, run: 1 }, Engine::new(Config::default()));
        not_held(&mut decider, 1, b"k");
        let (office, third) = decider.seal().unwrap();
        decider.settle(0, office, third.seq(), Fate::Applied);
        assert_eq!(answers(&mut decider), []);
        decider.settle(0, FIRST, first.seq(), Fate::Refused);
        assert_eq!(answers(&mut decider), [(1, "busy"), (1, "not held"), (1, "not held")]);
        assert!(decider.past.is_empty());
    }

    /// It was never told, so nobody holds it.
    #[test]
    fn a_grant_that_waits_for_an_earlier_office_is_given_back_with_its_connection() {
        let (mut decider, first, _) = with_a_fate_open(|decider| acquire(decider, 1, b"k"));
        assert_eq!(answers(&mut decider), []);
        assert_eq!(decider.stats().held, 1);
        decider.handle(0, Input::Closed(ConnId(1)));
        assert_eq!(decider.stats().held, 0);
        decider.settle(0, FIRST, first.seq(), Fate::Refused);
        assert_eq!(answers(&mut decider), []);
        assert!(decider.past.is_empty());
    }
}
