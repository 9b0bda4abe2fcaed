//! A client, one request at a time, and a server in few lines around the real decider
//! at whichever node is in office. What it is told is written down.

use std::time::{Duration, Instant};

use ticketing_engine::{Answer, Config, ConnId, Decider, Engine, Fate, Input, Office, Request};
use ticketing_history::{Call, Event, History, Note, Op, Outcome, Returned, Rules, Violation, check};

use crate::lab::{CLOCKS, Lab, Node, clock};

const CONNECTION: ConnId = ConnId(1);

/// What a client asks for.
#[derive(Clone, Copy)]
enum Ask {
    Acquire { lease_secs: u8 },
    Release { token: u64 },
}

/// Asks whoever is in office.
pub(crate) struct Client {
    history: History,
    /// Who decides, and where.
    decider: Decider,
    slot: usize,
    last: Option<Office>,
    /// How long it waits for an answer, and for somebody to ask.
    pub(crate) patience: Duration,
}

impl Client {
    pub(crate) fn new() -> Self {
        let patience = Duration::from_secs(10);
        let decider = Decider::new(Config::default());
        Self { history: History::default(), decider, slot: 0, last: None, patience }
    }

    /// The token of an acquire that does not wait.
    pub(crate) fn acquire(&mut self, lab: &Lab, key: &str, lease_secs: u8) -> Option<u64> {
        let call = Call::acquire(0, lease_secs);
        let outcome = self.ask(lab, key, call, Ask::Acquire { lease_secs });
        if let Outcome::Granted { token, .. } = outcome { Some(token) } else { None }
    }

    pub(crate) fn release(&mut self, lab: &Lab, key: &str, token: u64) {
        self.ask(lab, key, Call::Release { token }, Ask::Release { token });
    }

    /// The cluster has lost who holds what, and begins anew.
    pub(crate) fn everything_is_forgotten(&mut self, from: u64) {
        (self.decider, self.last) = (Decider::new(Config::default()), None);
        self.history.notes.push(Note { from, to: clock(), event: Event::Forgot });
    }

    /// What was promised to it and not kept.
    pub(crate) fn judge(mut self) -> Vec<Violation> {
        let now = clock();
        self.history.notes.push(Note { from: now, to: now, event: Event::End });
        check(&self.history, &Rules { busy: true, ..Rules::default() })
    }

    fn ask(&mut self, lab: &Lab, key: &str, call: Call, ask: Ask) -> Outcome {
        let id = self.history.ops.len() as u64;
        let (key, invoked) = (key.to_owned(), clock());
        let outcome = self.outcome(lab, key.as_bytes(), ask, (id, invoked));
        let returned = Some(Returned { at: clock(), outcome });
        self.history.ops.push(Op { id, process: 1, lane: None, key, call, invoked, returned });
        outcome
    }

    fn outcome(&mut self, lab: &Lab, key: &[u8], ask: Ask, (owner, invoked): (u64, u64)) -> Outcome {
        let until = Instant::now() + self.patience;
        let Some(node) = self.find_leader(lab, until) else { return Outcome::NotSent };
        let clock = CLOCKS[self.slot];
        let now = clock();
        self.decider.handle(now, Input::Tick);
        let request = match ask {
            Ask::Acquire { lease_secs } => {
                Request::Acquire { wait_secs: 0, lease_secs, owner, key, received: now }
            }
            Ask::Release { token } => Request::Release { token, key },
        };
        self.decider.handle(now, Input::Request(CONNECTION, request));
        while let Some((office, batch)) = self.decider.seal() {
            let told = node.propose(office, batch.seq(), &batch.effects().collect::<Vec<_>>());
            let left = until.saturating_duration_since(Instant::now());
            let fate = told.recv_timeout(left).unwrap_or(Fate::Unknown);
            self.decider.settle(clock(), office, batch.seq(), fate);
            if fate != Fate::Applied {
                node.cluster.renounce(office);
            }
        }
        let mut outcome = Outcome::Indeterminate;
        self.decider.drain(|_, answer| {
            outcome = match answer {
                Answer::Granted { token, ends_ms, .. } => {
                    let ends = invoked + u64::from(ends_ms) * 995_000;
                    Outcome::Granted { token, ends: Some(ends) }
                }
                Answer::TimedOut { .. } => Outcome::TimedOut,
                Answer::Busy { .. } => Outcome::Busy,
                Answer::Released { .. } => Outcome::Released,
                Answer::NotHeld { .. } => Outcome::NotHeld { retried: false },
                Answer::Place { .. }
                | Answer::Verified { .. }
                | Answer::VerifiedBusy { .. }
                | Answer::NotLeader
                | Answer::CloseUnknown
                | Answer::CloseOverloaded => Outcome::Indeterminate,
            }
        });
        outcome
    }

    /// A node in office, with a decider that has taken it.
    fn find_leader<'l>(&mut self, lab: &'l Lab, until: Instant) -> Option<&'l Node> {
        loop {
            let nodes = lab.nodes.iter().enumerate();
            let mut leaders = nodes.filter_map(|(slot, node)| Some((slot, node.as_ref()?)));
            let found = leaders.find_map(|(slot, node)| Some((slot, node, node.office()?)));
            match found {
                Some((slot, node, office)) if slot == self.slot && self.decider.office() == Some(office) => {
                    return Some(node);
                }
                Some((slot, node, office)) if self.last < Some(office) => {
                    let replica = node.cluster.replica()?;
                    let config = Config { next_token: replica.place().first_token, ..Config::default() };
                    self.decider = Decider::new(config);
                    let engine = Engine::restore(config, replica.table());
                    self.decider.take_office(CLOCKS[slot](), office, engine);
                    (self.slot, self.last) = (slot, Some(office));
                    return Some(node);
                }
                Some(_) | None if Instant::now() > until => return None,
                Some(_) | None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
