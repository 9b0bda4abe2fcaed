//! Sessions to all nodes, and which of them is asked: by the rules of the client's
//! own broker, which cannot be driven without its runtime.

use std::sync::Arc;

use ticketing::sans_io::{At, Session, Trouble, Word};

use super::{Caller, Client};
use crate::context::Context;
use crate::events::ClientEvent;
use crate::network::Side;
use crate::server::address;
use crate::time::{MILLISECOND, SECOND, Time};
use crate::trace::Line;

const FIRST_PAUSE: Time = 100 * MILLISECOND;
const LAST_PAUSE: Time = 3_200 * MILLISECOND;

/// A session that ends sooner does not prove the server healthy.
const HEALTHY: Time = SECOND;

/// For connecting and the handshake together.
const PATIENCE: Time = 5 * SECOND;

/// One connection, open or not.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) slot: u8,
    state: State,
    /// The server's last word about who leads, and its place among all words.
    word: Option<(Word, u64)>,
    pause: Time,
}

#[derive(Debug)]
enum State {
    Closed,
    /// Connected; the first frame has not come.
    Greeting {
        conn: u64,
        since: Time,
    },
    Open(Box<Open>),
}

#[derive(Debug)]
struct Open {
    conn: u64,
    session: Session<Caller>,
    since: Time,
    /// The next look at the session's deadlines.
    alarm_at: Time,
    /// How often in a row it had something due at once when all that was due was done.
    restless: u32,
}

/// A driver would never sleep again.
const RESTLESS: u32 = 100;

/// What a server says of its own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Leads,
    Elsewhere,
    Unknown,
}

impl Link {
    pub(super) const fn new(slot: u8) -> Self {
        Self { slot, state: State::Closed, word: None, pause: FIRST_PAUSE }
    }

    pub(super) fn session(&mut self) -> Option<&mut Session<Caller>> {
        match &mut self.state {
            State::Open(open) => Some(&mut open.session),
            State::Closed | State::Greeting { .. } => None,
        }
    }

    /// The connection of its session.
    pub(super) fn conn(&self) -> Option<u64> {
        match &self.state {
            State::Open(open) => Some(open.conn),
            State::Closed | State::Greeting { .. } => None,
        }
    }

    fn standing(&self) -> Standing {
        let (Some((word, _)), State::Open(_)) = (&self.word, &self.state) else { return Standing::Unknown };
        let own = address(Some(self.slot));
        match word {
            Word::Leader(named) | Word::Moved(named) if named.is_empty() => Standing::Unknown,
            Word::Leader(named) if **named == *own => Standing::Leads,
            Word::Moved(named) if **named == *own => Standing::Unknown,
            Word::Moved(_) | Word::Leader(_) => Standing::Elsewhere,
        }
    }
}

impl Client {
    /// The links that may be asked, and whether they are known to lead.
    fn route(&self) -> (Vec<u8>, bool) {
        let with = |wanted: Standing| {
            let open = self.links.iter().filter(|link| matches!(link.state, State::Open(_)));
            open.filter(move |link| link.standing() == wanted)
        };
        let said_at = |link: &&Link| link.word.as_ref().map(|(_, at)| *at);
        if let Some(newest) = with(Standing::Leads).max_by_key(said_at) {
            return (vec![newest.slot], true);
        }
        let is_named = |link: &&Link| self.leader.as_deref() == Some(&*address(Some(link.slot)));
        let named = with(Standing::Unknown).filter(is_named).map(|link| link.slot).collect::<Vec<_>>();
        let unknown = || with(Standing::Unknown).map(|link| link.slot).collect();
        (if named.is_empty() { unknown() } else { named }, false)
    }

    /// A link to ask, by turns. A verify asks none but a leader, and not the one
    /// that owes the answer.
    pub(super) fn pick(&mut self, leads: bool, not: Option<u8>) -> Option<u8> {
        let (links, known) = self.route();
        let mut usable = links.into_iter().filter(|&link| Some(link) != not && (known || !leads));
        let usable = usable.by_ref().collect::<Vec<_>>();
        self.turn = self.turn.wrapping_add(1);
        usable.get(self.turn.checked_rem(usable.len())?).copied()
    }

    pub(super) fn link(&mut self, link: u8) -> Option<&mut Link> {
        self.links.get_mut(usize::from(link))
    }

    pub(super) fn connect_in(&mut self, ctx: &mut Context, pause: Time, link: u8) {
        ctx.client_in(pause, self.number, self.life, ClientEvent::Connect(link));
    }

    /// Whether this link wants a connection; then the world makes one, or none.
    pub(crate) fn wants(&self, link: u8) -> bool {
        self.links.get(usize::from(link)).is_some_and(|link| matches!(link.state, State::Closed))
    }

    /// The connection is there; the server speaks first.
    pub(crate) fn connected(&mut self, ctx: &mut Context, number: u8, conn: u64) {
        let since = ctx.now;
        if let Some(link) = self.link(number) {
            link.state = State::Greeting { conn, since };
            ctx.client_in(PATIENCE, self.number, self.life, ClientEvent::Alarm(number));
        }
    }

    /// There is no connection, after so long a time.
    pub(crate) fn not_connected(&mut self, ctx: &mut Context, number: u8, after: Time) {
        let Some(link) = self.link(number) else { return };
        let pause = link.pause;
        link.pause = (pause * 2).min(LAST_PAUSE);
        link.state = State::Closed;
        let pause = after + pause + ctx.random.between(0, pause / 4);
        self.connect_in(ctx, pause, number);
    }

    /// Which connection a link is, or is about to be.
    fn has(&self, number: u8, id: u64) -> bool {
        self.links.get(usize::from(number)).is_some_and(|link| match &link.state {
            State::Closed => false,
            State::Greeting { conn, .. } => *conn == id,
            State::Open(open) => open.conn == id,
        })
    }

    /// Bytes of a server.
    pub(crate) fn read(&mut self, ctx: &mut Context, number: u8, conn: u64, bytes: &[u8]) {
        if !self.has(number, conn) {
            return;
        }
        let (now, local) = (ctx.now, self.local(ctx));
        let Some(link) = self.link(number) else { return };
        if let State::Greeting { .. } = link.state {
            let session = Session::new(local, true);
            link.state =
                State::Open(Box::new(Open { conn, session, since: now, alarm_at: Time::MAX, restless: 0 }));
            link.word = None;
        }
        let Some(session) = link.session() else { return };
        let outcome = session.read(local, bytes);
        if let Some(word) = session.take_word() {
            self.heard(number, word);
        }
        match outcome {
            Ok(()) => self.drive(ctx, number),
            Err(trouble) => self.lose(ctx, number, trouble),
        }
        self.go_on(ctx);
    }

    /// A server has said who leads.
    fn heard(&mut self, number: u8, word: Word) {
        self.words += 1;
        let (Word::Leader(named) | Word::Moved(named)) = &word;
        if !named.is_empty() {
            self.leader = Some(named.clone());
        }
        let words = self.words;
        let Some(link) = self.link(number) else { return };
        link.word = Some((word, words));
        if link.standing() == Standing::Elsewhere
            && let Some(session) = link.session()
        {
            session.give_back_unsent();
        }
    }

    /// The end of the stream.
    pub(crate) fn ended(&mut self, ctx: &mut Context, number: u8, conn: u64) {
        if self.has(number, conn) {
            self.lose(ctx, number, Trouble::Closed);
            self.go_on(ctx);
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&mut self, ctx: &mut Context, number: u8, conn: u64) {
        if self.has(number, conn) {
            self.drive(ctx, number);
            self.go_on(ctx);
        }
    }

    /// The session of a link has something due.
    pub(crate) fn alarm(&mut self, ctx: &mut Context, number: u8) {
        let now = ctx.now;
        let Some(link) = self.link(number) else { return };
        match &mut link.state {
            State::Closed => {}
            State::Greeting { since, .. } if now < *since + PATIENCE => {}
            State::Greeting { .. } => self.lose(ctx, number, Trouble::Closed),
            State::Open(open) if open.alarm_at > now => {}
            State::Open(open) => {
                open.alarm_at = Time::MAX;
                self.drive(ctx, number);
            }
        }
        self.go_on(ctx);
    }

    /// Moves bytes and time through a session.
    pub(super) fn drive(&mut self, ctx: &mut Context, number: u8) {
        let local = self.local(ctx);
        let clock = self.clock;
        let (who, life) = self.who();
        let Some(Link { state: State::Open(open), .. }) = self.link(number) else { return };
        if let Err(trouble) = open.session.on_time(local) {
            return self.lose(ctx, number, trouble);
        }
        loop {
            let bytes = open.session.transmit(local);
            if bytes.is_empty() {
                open.session.write_idle();
                break;
            }
            let Context { now, queue, random, network, .. } = ctx;
            match network.write(*now, queue, random, (open.conn, Side::Server), bytes) {
                None => return self.lose(ctx, number, Trouble::Closed),
                Some(0) => {
                    open.session.write_blocked(local);
                    break;
                }
                Some(taken) => open.session.wrote(taken),
            }
        }
        let at = clock.when(open.session.next_deadline()).max(ctx.now + 1);
        open.restless = if at > ctx.now + 1 { 0 } else { open.restless + 1 };
        if open.restless > RESTLESS {
            ctx.ledger.fail("Liveness", format!("client {who}: a session is never done: {:?}", open.session));
        }
        if at < open.alarm_at {
            open.alarm_at = at;
            ctx.client_in(at - ctx.now, who, life, ClientEvent::Alarm(number));
        }
    }

    /// A session is over; everyone who waits there is told.
    fn lose(&mut self, ctx: &mut Context, number: u8, trouble: Trouble) {
        let client = self.number;
        let Some(link) = self.link(number) else { return };
        let slot = link.slot;
        link.word = None;
        let state = std::mem::replace(&mut link.state, State::Closed);
        let conn = match state {
            State::Closed => return,
            State::Greeting { conn, .. } => conn,
            State::Open(mut open) => {
                if ctx.now >= open.since + HEALTHY {
                    link.pause = FIRST_PAUSE;
                }
                if matches!(trouble, Trouble::Unbound(_) | Trouble::Malformed(_)) {
                    ctx.ledger.fail("Answer", format!("client {client}, node {slot}: {trouble}"));
                }
                ctx.note(Line::Lost { client, slot, why: trouble.to_string() });
                let address = address(Some(slot)).into();
                open.session.end(&Arc::new(At { address, what: trouble }));
                open.conn
            }
        };
        let Context { now, queue, random, network, .. } = ctx;
        network.close(*now, queue, random, conn, Side::Client);
        self.forget_link(number);
        self.not_connected(ctx, number, 0);
    }
}
