//! Who is connected, who leads, and where the next request goes.
//!
//! Changes are rare and take a lock; what every request needs is worked out at
//! the change and published as one [`Route`], which requests only read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::standing::{Standing, candidates, standing};
use crate::link::{Command, Greeted, Link};
use crate::session::Word;
use crate::trouble::{At, Trouble};
use crate::{ConnectionStatus, ErrorKind};

/// How far the life of a broker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Open,
    /// No acquire begins any more; releases still go out.
    Draining,
    /// Sessions end.
    Stopping,
    /// No task is left.
    Done,
}

/// Where requests go now.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) phase: Phase,
    /// Sessions that may be asked, by turns.
    links: Vec<Arc<Link>>,
    /// Whether those are known to lead.
    pub(crate) leads: bool,
    /// Every connection fails for an error of configuration; this is one.
    pub(crate) refusal: Option<Arc<At<Trouble>>>,
    /// The best explanation of why there is no session to ask.
    pub(crate) trouble: Option<Arc<At<Trouble>>>,
}

impl Route {
    /// A session to ask.
    pub(crate) fn pick(&self, turn: usize) -> Option<&Arc<Link>> {
        self.pick_but(turn, None)
    }

    /// A session to ask, but not this one.
    pub(crate) fn pick_but(&self, turn: usize, not: Option<&Arc<Link>>) -> Option<&Arc<Link>> {
        let links = self.links.len();
        let mut turns = (0..links).filter_map(|step| self.links.get((turn % links + step) % links));
        turns.find(|link| not.is_none_or(|not| !Arc::ptr_eq(link, not)))
    }
}

/// One connection, open or not.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) address: Arc<str>,
    /// What the server said of itself, also when the session is over.
    pub(super) greeted: Option<Greeted>,
    pub(super) link: Option<Arc<Link>>,
    /// The server's last word about who leads, in this session, and its place
    /// among the words of all servers.
    pub(super) word: Option<(Word, u64)>,
    trouble: Option<Arc<At<Trouble>>>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    connections: Vec<Connection>,
    words: u64,
    /// The leader that was named last, whoever said so.
    leader: Option<Box<str>>,
    trouble: Option<Arc<At<Trouble>>>,
}

#[derive(Debug)]
pub(crate) struct Directory {
    state: Mutex<State>,
    route: watch::Sender<Route>,
}

impl Directory {
    pub(crate) fn new(addresses: impl IntoIterator<Item = Arc<str>>) -> Self {
        let connection =
            |address| Connection { address, greeted: None, link: None, word: None, trouble: None };
        let connections = addresses.into_iter().map(connection).collect();
        let state = State { phase: Phase::Open, connections, words: 0, leader: None, trouble: None };
        let route = watch::Sender::new(state.route());
        Self { state: Mutex::new(state), route }
    }

    /// Where requests go now. Held for a moment only.
    pub(crate) fn route(&self) -> watch::Ref<'_, Route> {
        self.route.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Route> {
        self.route.subscribe()
    }

    /// A session is open. Gives back whether its server says that another node
    /// leads; `None`: the broker has stopped, and the session must end.
    pub(crate) fn opened(&self, link: &Arc<Link>, word: Option<Word>) -> Option<bool> {
        let mut state = self.lock();
        if state.phase >= Phase::Stopping {
            return None;
        }
        let connection = state.connections.get_mut(link.connection)?;
        connection.greeted = Some(link.greeted.clone());
        connection.link = Some(Arc::clone(link));
        connection.word = None;
        connection.trouble = None;
        if let Some(word) = word {
            state.heard(link.connection, word);
        }
        self.publish(&state);
        Some(state.is_elsewhere(link.connection))
    }

    /// A server said who leads. Gives back whether that is another node.
    pub(crate) fn heard(&self, link: &Link, word: Word) -> bool {
        let mut state = self.lock();
        state.heard(link.connection, word);
        self.publish(&state);
        state.is_elsewhere(link.connection)
    }

    /// A session is over.
    pub(crate) fn lost(&self, link: &Link, why: &Arc<At<Trouble>>) {
        self.failed(link.connection, why);
    }

    /// A session is over, or could not be opened.
    pub(crate) fn failed(&self, connection: usize, why: &Arc<At<Trouble>>) {
        let mut state = self.lock();
        if let Some(connection) = state.connections.get_mut(connection) {
            connection.link = None;
            connection.word = None;
            connection.trouble = Some(Arc::clone(why));
        }
        state.trouble = Some(Arc::clone(why));
        self.publish(&state);
    }

    /// It takes long to open a session. Only where nothing else explains that there
    /// is none: what went wrong before says more.
    pub(crate) fn slow(&self, connection: usize, why: &Arc<At<Trouble>>) {
        let mut state = self.lock();
        if let Some(connection) = state.connections.get_mut(connection) {
            connection.trouble.get_or_insert_with(|| Arc::clone(why));
        }
        state.trouble.get_or_insert_with(|| Arc::clone(why));
        self.publish(&state);
    }

    /// Goes on to a later phase, and tells every session what that means for it.
    pub(crate) fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        if state.phase >= phase {
            return;
        }
        state.phase = phase;
        self.publish(&state);
        for link in state.connections.iter().filter_map(|connection| connection.link.as_ref()) {
            // A session that is just ending needs no word.
            let _ = match phase {
                Phase::Open | Phase::Done => Ok(()),
                Phase::Draining => link.send(Command::WindDown),
                Phase::Stopping => link.send(Command::Stop),
            };
        }
    }

    pub(crate) fn statuses(&self) -> Vec<ConnectionStatus> {
        let state = self.lock();
        let status = |(index, connection): (usize, &Connection)| {
            let greeted = connection.link.as_ref().map(|link| &link.greeted);
            ConnectionStatus {
                address: connection.address.as_ref().to_owned(),
                open: greeted.is_some(),
                domain: greeted.and_then(|greeted| greeted.domain),
                node: greeted.and_then(|greeted| greeted.node),
                leads: match standing(&state.connections, index) {
                    Standing::Leads => Some(true),
                    Standing::Elsewhere => Some(false),
                    Standing::Unknown => None,
                },
                extension: greeted.is_some_and(|greeted| greeted.extension),
                last_error: connection.trouble.as_ref().map(|trouble| crate::error::chain(trouble.as_ref())),
            }
        };
        state.connections.iter().enumerate().map(status).collect()
    }

    fn publish(&self, state: &State) {
        self.route.send_replace(state.route());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn heard(&mut self, connection: usize, word: Word) {
        self.words += 1;
        let (Word::Leader(named) | Word::Moved(named)) = &word;
        if !named.is_empty() {
            self.leader = Some(named.clone());
        }
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.word = Some((word, self.words));
        }
    }

    fn is_elsewhere(&self, connection: usize) -> bool {
        standing(&self.connections, connection) == Standing::Elsewhere
    }

    fn route(&self) -> Route {
        let (indices, leads) = candidates(&self.connections, self.leader.as_deref());
        let link = |index: usize| self.connections.get(index).and_then(|one| one.link.clone());
        let links = indices.into_iter().filter_map(link).collect();
        Route { phase: self.phase, links, leads, refusal: self.refusal(), trouble: self.explanation() }
    }

    fn refusal(&self) -> Option<Arc<At<Trouble>>> {
        let all = self.connections.iter().all(|connection| configuration(connection).is_some());
        let first = self.connections.first().and_then(|connection| connection.trouble.clone());
        first.filter(|_| all)
    }

    /// What a person must mend comes before what time may heal.
    fn explanation(&self) -> Option<Arc<At<Trouble>>> {
        let mend = self.connections.iter().find(|connection| configuration(connection).is_some());
        let mend = mend.and_then(|connection| connection.trouble.clone());
        mend.or_else(|| self.elsewhere()).or_else(|| self.trouble.clone())
    }

    /// Sessions are open, and each of them names somebody else.
    fn elsewhere(&self) -> Option<Arc<At<Trouble>>> {
        let leader = self.leader.clone()?;
        let open = self.connections.iter().position(|connection| connection.link.is_some())?;
        let address = Arc::clone(&self.connections.get(open)?.address);
        self.is_elsewhere(open).then(|| Arc::new(At { address, what: Trouble::Elsewhere(leader) }))
    }
}

/// The kind of the error of configuration for which a connection is not open.
fn configuration(connection: &Connection) -> Option<ErrorKind> {
    if connection.link.is_some() {
        return None;
    }
    connection.trouble.as_ref().and_then(|trouble| trouble.what.configuration())
}
