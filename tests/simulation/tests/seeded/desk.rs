//! A server alone, in memory, whose requests arrive when a story wants them to.

use ticketing_engine::{Answer, Config, ConnId, Engine, Input, Request, SECOND};
use ticketing_history::{Call, Event, History, Note, Op, Outcome, Returned, Rules, Violation, check};

/// The engine, and what its clients see. An acquire is known by its number, which is
/// its owner.
pub(crate) struct Desk {
    engine: Engine,
    now: u64,
    history: History,
    /// The token of each acquire, as the server knows it.
    tokens: Vec<Option<u64>>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let engine = Engine::new(Config::default());
        Self { engine, now: 1_000 * SECOND, history: History::default(), tokens: Vec::new() }
    }

    /// A client sends an acquire, for so many seconds of wait and lease.
    pub(crate) fn sets_out(&mut self, key: &str, (wait_secs, lease_secs): (u8, u8)) -> u64 {
        self.begins(key.to_owned(), Call::acquire(wait_secs, lease_secs))
    }

    /// The acquire arrives, on this connection.
    pub(crate) fn arrives(&mut self, connection: u64, acquire: u64) {
        let Op { key, call, .. } = self.op(acquire).clone();
        let Call::Acquire { wait_secs, lease_secs, .. } = call else { panic!("{acquire} is no acquire") };
        let (key, received) = (key.as_bytes(), self.now);
        let request = Request::Acquire { wait_secs, lease_secs, owner: acquire, key, received };
        self.handle(Input::Request(ConnId(connection), request), acquire);
    }

    pub(crate) fn acquire(&mut self, connection: u64, key: &str, times: (u8, u8)) -> u64 {
        let acquire = self.sets_out(key, times);
        self.arrives(connection, acquire);
        acquire
    }

    /// Its client hears nothing more of an acquire.
    pub(crate) fn loses(&mut self, acquire: u64) {
        self.ends(acquire, Outcome::Indeterminate);
    }

    pub(crate) fn verify(&mut self, connection: u64, acquire: u64) {
        let key = self.op(acquire).key.clone();
        let verify = self.begins(key.clone(), Call::Verify { of: acquire });
        let request = Request::Verify { owner: acquire, key: key.as_bytes() };
        self.handle(Input::Request(ConnId(connection), request), verify);
    }

    pub(crate) fn release(&mut self, connection: u64, acquire: u64) {
        let (key, token) = (self.op(acquire).key.clone(), self.token(acquire));
        let release = self.begins(key.clone(), Call::Release { token });
        let request = Request::Release { token, key: key.as_bytes() };
        self.handle(Input::Request(ConnId(connection), request), release);
    }

    /// The server finds that no byte of the answer of this acquire has left.
    pub(crate) fn undelivered(&mut self, acquire: u64) {
        let (key, token) = (self.op(acquire).key.clone(), self.token(acquire));
        self.handle(Input::Undelivered { token, key: key.as_bytes() }, acquire);
    }

    /// So many seconds pass.
    pub(crate) fn passes(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
        self.engine.handle(self.now, Input::Tick);
    }

    pub(crate) fn judge(mut self) -> Vec<Violation> {
        self.now += SECOND;
        self.history.notes.push(Note { from: self.now, to: self.now, event: Event::End });
        check(&self.history, &Rules::default())
    }

    fn op(&self, number: u64) -> &Op {
        &self.history.ops[usize::try_from(number).unwrap()]
    }

    fn token(&self, acquire: u64) -> u64 {
        self.tokens[usize::try_from(acquire).unwrap()].expect("it was granted")
    }

    fn begins(&mut self, key: String, call: Call) -> u64 {
        self.now += SECOND / 100;
        let (id, invoked) = (self.history.ops.len() as u64, self.now);
        self.history.ops.push(Op { id, process: 0, lane: None, key, call, invoked, returned: None });
        self.tokens.push(None);
        id
    }

    fn ends(&mut self, number: u64, outcome: Outcome) {
        let at = self.now;
        self.history.ops[usize::try_from(number).unwrap()].returned.get_or_insert(Returned { at, outcome });
    }

    /// What is decided has committed at once. `asked`: the request that this is about.
    fn handle(&mut self, input: Input<'_>, asked: u64) {
        self.now += SECOND / 100;
        self.engine.handle(self.now, input);
        while let Some(batch) = self.engine.seal() {
            self.engine.handle(self.now, Input::Committed(batch.seq()));
        }
        let mut told = Vec::new();
        self.engine.drain(|_, answer| {
            told.push(match answer {
                Answer::Granted { token, owner, .. } => (owner, Outcome::Granted { token, ends: None }),
                Answer::Verified { token, .. } => (asked, Outcome::Granted { token, ends: None }),
                Answer::VerifiedBusy { .. } => (asked, Outcome::NotAcquired),
                Answer::Released { .. } => (asked, Outcome::Released),
                Answer::NotHeld { .. } => (asked, Outcome::NotHeld { retried: false }),
                Answer::TimedOut { owner, .. } => (owner, Outcome::TimedOut),
                Answer::Busy { owner, .. } => (owner, Outcome::Busy),
                Answer::Place { .. } | Answer::NotLeader | Answer::CloseUnknown | Answer::CloseOverloaded => {
                    panic!("{answer:?} in a story")
                }
            });
        });
        for (number, outcome) in told {
            if let Outcome::Granted { token, .. } = outcome {
                self.tokens[usize::try_from(number).unwrap()] = Some(token);
            }
            self.ends(number, outcome);
        }
    }
}
