//! The session under a clock that the test moves, with sockets that take as
//! many bytes as the test says.

mod answers;
mod cuts;
mod fates;
mod life;
mod random;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key, ServerFrame};

use super::*;

const SEC: u64 = SECOND;
const START: u64 = 1_000_000 * SECOND;
const KEY: &str = "seat:12";

/// Every fate that was told, in order, with the number of the request.
type Told = Rc<RefCell<Vec<(u64, Fate)>>>;

#[derive(Debug)]
struct Recorder {
    id: u64,
    told: Told,
}

impl Reply for Recorder {
    fn tell(&mut self, _: &Request, fate: Fate) {
        self.told.borrow_mut().push((self.id, fate));
    }
}

/// A session, its clock, and what it said.
struct Rig {
    session: Session<Recorder>,
    told: Told,
    now: u64,
    /// What a server at the other end reads.
    server: Decoder<ClientToServer>,
}

impl Rig {
    fn new(extension: bool) -> Self {
        let server = Decoder::new(if extension { Extension::On } else { Extension::Off });
        Self { session: Session::new(START, extension), told: Told::default(), now: START, server }
    }

    fn recorder(&self, id: u64) -> Recorder {
        Recorder { id, told: Rc::clone(&self.told) }
    }

    fn submit(&mut self, id: u64, kind: Kind, until: u64) {
        let request = Request { key: KEY.into(), kind, until };
        self.session.submit(self.now, request, self.recorder(id));
    }

    /// An acquire whose number and owner are the same, with a lease of 10 s.
    fn acquire(&mut self, owner: u64, wait_secs: u64) {
        let until = self.now + wait_secs.max(1) * SEC;
        let wait_secs = u8::try_from(wait_secs).unwrap();
        self.submit(owner, Kind::Acquire { owner, wait_secs, lease_secs: 10 }, until);
    }

    fn release(&mut self, id: u64, token: u64) {
        self.submit(id, Kind::Release { token }, self.now + 5 * SEC);
    }

    fn verify(&mut self, id: u64, owner: u64, sent_at: u64) {
        self.submit(id, Kind::Verify { owner, lease_secs: 10, sent_at }, self.now + 3 * SEC);
    }

    /// The socket takes up to `most` bytes; what it took, as the server's
    /// decoder sees it.
    fn write(&mut self, most: usize) -> Vec<String> {
        let bytes = self.session.transmit(self.now).to_vec();
        let taken = bytes.len().min(most);
        if taken > 0 {
            self.session.wrote(taken);
        }
        let mut frames = Vec::new();
        self.server.feed(&bytes[..taken], |frame| frames.push(show(frame))).unwrap();
        frames
    }

    fn write_all(&mut self) -> Vec<String> {
        self.write(usize::MAX)
    }

    fn hear(&mut self, frame: ServerFrame<'_>) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.session.read(self.now, &bytes)
    }

    fn pass(&mut self, nanos: u64) -> Result<(), Trouble> {
        self.now += nanos;
        self.session.on_time(self.now)
    }

    fn end(&mut self) {
        let why = Arc::new(At { address: "here:1".into(), what: Trouble::Closed });
        self.session.end(&why);
    }

    /// What was told since the last call.
    fn told(&mut self) -> Vec<String> {
        let told = std::mem::take(&mut *self.told.borrow_mut());
        told.iter().map(|(id, fate)| format!("{id} {}", self.show_fate(fate))).collect()
    }

    /// Times are shown in milliseconds since the start.
    fn show_fate(&self, fate: &Fate) -> String {
        let ms = |at: u64| (at - START) / MILLISECOND;
        match fate {
            Fate::Granted { token, ends_at } => format!("granted {token} ends {}", ms(*ends_at)),
            Fate::TimedOut => "timed out".to_owned(),
            Fate::Busy => "busy".to_owned(),
            Fate::Place { place, waiters } => format!("place {place}/{waiters}"),
            Fate::Released => "released".to_owned(),
            Fate::NotHeld => "not held".to_owned(),
            Fate::Unsent => "unsent".to_owned(),
            Fate::Unanswered { sent_at, why } => {
                let why = match why {
                    Why::Overdue => "overdue",
                    Why::Moved => "moved",
                    Why::Lost(_) => "lost",
                };
                format!("{why} sent {}", ms(*sent_at))
            }
        }
    }
}

fn key() -> Key<'static> {
    Key::new(KEY).unwrap()
}

fn show(frame: ClientFrame<'_>) -> String {
    match frame {
        ClientFrame::Acquire { wait, lease, owner, .. } => format!("A {owner} wait {wait} lease {lease}"),
        ClientFrame::Release { token, .. } => format!("R {token}"),
        ClientFrame::Cancel { owner, .. } => format!("C {owner}"),
        ClientFrame::Place { owner, .. } => format!("P {owner}"),
        ClientFrame::Verify { owner, .. } => format!("V {owner}"),
    }
}

fn granted(owner: u64, token: u64) -> ServerFrame<'static> {
    ServerFrame::Granted { token, owner, key: key() }
}

fn granted_until(owner: u64, token: u64, ends_ms: u32) -> ServerFrame<'static> {
    ServerFrame::GrantedUntil { token, owner, ends_ms, key: key() }
}

fn busy(owner: u64) -> ServerFrame<'static> {
    ServerFrame::Busy { owner, key: key() }
}

fn timed_out(owner: u64) -> ServerFrame<'static> {
    ServerFrame::TimedOut { owner, key: key() }
}

fn released(token: u64) -> ServerFrame<'static> {
    ServerFrame::Released { token, key: key() }
}

fn not_held(token: u64) -> ServerFrame<'static> {
    ServerFrame::NotHeld { token, key: key() }
}
