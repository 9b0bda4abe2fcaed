//! One connection after its handshake, as a plain value: requests and bytes in,
//! bytes and fates out. No socket, no clock, no task: time is an argument, so a
//! test moves it by hand and sees every rule.
//!
//! Each request has exactly one fate. Which one hangs on a single fact, kept by
//! the outbox: whether a byte of it was handed to the socket. Before that it is
//! free to go elsewhere; after that only a bound answer says anything.

mod answers;
mod ledger;
mod outbox;
mod pulse;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ticketing_protocol::{ClientFrame, Decoder, Extension, Key, ServerToClient};
use ticketing_timers::Timers;

use crate::clock::{MILLISECOND, SECOND};
use crate::trouble::{At, Trouble};
use ledger::{Cut, Ledger, Sent, State};
use outbox::{Entry, Outbox};
use pulse::Pulse;
pub(crate) use request::{Bond, COUNTED_PER_MILLE};
pub use request::{Fate, Kind, Reply, Request, Why};

/// How long past its wait an acquire is awaited before it counts as lost.
const ANSWER_GRACE_SECS: u16 = 5;

/// The wait on the wire may be this much longer than what the caller has left
/// before it is worth a cancel.
const CUT_TOLERANCE: u64 = 100 * MILLISECOND;

/// A server's word about who leads: an address, or empty for "not known".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// `L`: this one leads.
    Leader(Box<str>),
    /// `M`: not I; perhaps this one.
    Moved(Box<str>),
}

/// One connection after its handshake.
#[derive(Debug)]
pub struct Session<R> {
    decoder: Decoder<ServerToClient>,
    book: Book<R>,
}

/// All but the decoder, whose frames borrow what they were read from.
#[derive(Debug)]
struct Book<R> {
    ledger: Ledger<R>,
    outbox: Outbox,
    timers: Timers<usize>,
    pulse: Pulse,
    extension: bool,
    /// How many requests the server owes an answer, records included.
    owed: usize,
    /// When the bytes of the last `transmit` were given out.
    offered_at: u64,
    /// The broker closes: only releases are taken.
    closing: bool,
    /// The last word that nobody has taken yet.
    word: Option<Word>,
    /// Whether the last frame was a `B`.
    after_busy: bool,
}

impl<R: Reply> Session<R> {
    /// A session whose handshake is over.
    pub fn new(now: u64, extension: bool) -> Self {
        let book = Book {
            ledger: Ledger::new(),
            outbox: Outbox::default(),
            timers: Timers::new(),
            pulse: Pulse::new(now),
            extension,
            owed: 0,
            offered_at: now,
            closing: false,
            word: None,
            after_busy: false,
        };
        Self { decoder: Decoder::new(if extension { Extension::On } else { Extension::Off }), book }
    }

    /// Takes a request in. Nothing is sent before [`Session::transmit`].
    pub fn submit(&mut self, now: u64, request: Request, mut reply: R) {
        let book = &mut self.book;
        let too_late = book.closing && !matches!(request.kind, Kind::Release { .. });
        if request.until <= now || too_late || book.ledger.clashes(&request) {
            reply.tell(&request, Fate::Unsent);
            return;
        }
        let until = request.until;
        let (index, serial) = book.ledger.insert(request, reply);
        book.arm(index, now, until);
        book.outbox.push(Entry::Request { index, serial });
    }

    /// The caller of this acquire has gone.
    pub fn give_up(&mut self, owner: u64, key: &str) {
        let bond = Bond::Owner(owner);
        if let Some(index) = self.book.ledger.bound(bond, key) {
            self.book.let_go(index);
            self.book.cancel(index);
        } else if let Some(index) = self.book.ledger.queued(bond, key) {
            self.book.drop_unsent(index);
        }
    }

    /// Whether something waits to be written.
    pub fn has_unsent(&self) -> bool {
        !self.book.outbox.is_empty()
    }

    /// The next bytes to write; empty: nothing. None of them counts as handed
    /// over before [`Session::wrote`] says so.
    pub fn transmit(&mut self, now: u64) -> &[u8] {
        let Book { ledger, outbox, pulse, offered_at, .. } = &mut self.book;
        *offered_at = now;
        if outbox.is_empty() && pulse.is_due(now) {
            outbox.push(Entry::KeepAlive);
        }
        outbox.fill(|entry, out| encode(ledger, entry, now, out))
    }

    /// The socket took this many of the bytes of the last `transmit`.
    pub fn wrote(&mut self, bytes: usize) {
        let book = &mut self.book;
        // The time of `transmit`, not of its outcome: a lease must be counted
        // from a moment before the server could have seen the request.
        let at = book.offered_at;
        book.pulse.wrote(at);
        book.outbox.took(bytes);
        while let Some(entry) = book.outbox.pop_gone() {
            book.handed_over(entry, at);
        }
    }

    /// A write failed, and any of the bytes of the last `transmit` may have left.
    pub fn wrote_perhaps(&mut self) {
        self.wrote(self.book.outbox.unwritten().len());
    }

    /// The socket takes nothing now.
    pub fn write_blocked(&mut self, now: u64) {
        self.book.pulse.blocked(now);
    }

    /// All that was to be written has left.
    pub fn write_idle(&mut self) {
        self.book.pulse.unblocked();
    }

    /// Bytes came in.
    ///
    /// # Errors
    /// The reason to give the session up.
    pub fn read(&mut self, now: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let Self { decoder, book } = self;
        let first = !decoder.is_mid_frame() && bytes.first() == Some(&b'\n');
        // A frame behind a fatal one counts for nothing.
        let mut outcome = Ok(());
        let read = decoder.feed(bytes, |frame| {
            if outcome.is_ok() {
                outcome = book.answer(frame);
            }
        });
        // Behind a frame: no text begins with LF, and only M and L may have none.
        let last = !decoder.is_mid_frame() && bytes.ends_with(b"\n\n");
        book.pulse.heard(now, first || last);
        book.pulse.pending(now, book.owed > 0);
        outcome.and(read.map_err(Trouble::Malformed))
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The reason to give the session up.
    pub fn on_time(&mut self, now: u64) -> Result<(), Trouble> {
        while let Some(index) = self.book.timers.pop_due(now) {
            self.book.due(index);
        }
        self.book.pulse.check(now)
    }

    /// When to call [`Session::on_time`] and [`Session::transmit`] next, if nothing happens before.
    pub fn next_deadline(&self) -> u64 {
        let book = &self.book;
        book.timers.next_deadline().unwrap_or(u64::MAX).min(book.pulse.next_deadline())
    }

    /// The server's last word about who leads, if it is new.
    pub fn take_word(&mut self) -> Option<Word> {
        self.book.word.take()
    }

    /// Gives back every request of which no byte was handed over: they can go
    /// elsewhere, as they must when this server does not lead.
    pub fn give_back_unsent(&mut self) {
        for entry in self.book.outbox.entries().collect::<Vec<_>>() {
            if let Entry::Request { index, .. } = entry
                && self.book.is_live(entry)
            {
                self.book.unsent(index);
            }
        }
    }

    /// The broker closes: no acquire begins any more, and waiters leave the
    /// queue where the server lets them.
    pub fn wind_down(&mut self) {
        self.book.closing = true;
        for index in self.book.ledger.indices() {
            let Some(slot) = self.book.ledger.get(index) else { continue };
            match (slot.request.kind, slot.state) {
                (Kind::Release { .. }, _) => {}
                (_, State::Queued) => self.book.unsent(index),
                (_, State::Sent(_)) => self.book.cancel(index),
            }
        }
    }

    /// The connection is over; everyone still waiting is told.
    pub fn end(&mut self, why: &Arc<At<Trouble>>) {
        for index in self.book.ledger.indices() {
            let Some(mut slot) = self.book.take(index) else { continue };
            match slot.state {
                State::Queued => slot.reply.tell(&slot.request, Fate::Unsent),
                State::Sent(Sent { at, awaited: true, .. }) => {
                    let fate = Fate::Unanswered { sent_at: at, why: Why::Lost(Arc::clone(why)) };
                    slot.reply.tell(&slot.request, fate);
                }
                State::Sent(_) => {}
            }
        }
    }
}

/// Appends the frame of an entry, or nothing if its request is gone.
fn encode<R>(ledger: &Ledger<R>, entry: Entry, now: u64, out: &mut Vec<u8>) {
    let (index, serial) = match entry {
        Entry::Request { index, serial } | Entry::Cancel { index, serial } => (index, serial),
        Entry::KeepAlive => return out.push(b'\n'),
    };
    let Some(slot) = ledger.get(index).filter(|slot| slot.serial == serial) else { return };
    // The key was checked where it came in.
    let Ok(key) = Key::new(&slot.request.key) else { return };
    match (entry, slot.request.bond()) {
        (Entry::Cancel { .. }, Bond::Owner(owner)) => ClientFrame::Cancel { owner, key }.encode(out),
        (Entry::Cancel { .. } | Entry::KeepAlive, _) => {}
        (Entry::Request { .. }, _) => slot.request.frame(key, now).encode(out),
    }
}

impl<R: Reply> Book<R> {
    /// The first byte of a frame is gone.
    fn handed_over(&mut self, entry: Entry, at: u64) {
        let Entry::Request { index, .. } = entry else { return };
        if !self.is_live(entry) {
            return;
        }
        let Some(slot) = self.ledger.get_mut(index) else { return };
        let wait_secs = slot.request.wait_secs(at);
        let wire_end = at.saturating_add(u64::from(wait_secs) * SECOND);
        let late = wire_end > slot.request.until.saturating_add(CUT_TOLERANCE);
        let acquire = matches!(slot.request.kind, Kind::Acquire { .. });
        let cut = if acquire && wait_secs > 0 && late && self.extension { Cut::Due } else { Cut::No };
        slot.state = State::Sent(Sent { at, wait_secs, awaited: true, owed: true, cut, cancelled: false });
        self.owed += 1;
        self.pulse.pending(at, true);
        if acquire && cut == Cut::No {
            self.arm(index, at, overdue_at(at, wait_secs));
        }
    }

    /// The timer of a request has run out.
    fn due(&mut self, index: usize) {
        let Some(slot) = self.ledger.get_mut(index) else { return };
        slot.timer = None;
        match &mut slot.state {
            State::Queued => self.unsent(index),
            State::Sent(sent) if sent.cut == Cut::Due => {
                sent.cut = Cut::Done;
                let (at, wait_secs) = (sent.at, sent.wait_secs);
                self.cancel(index);
                self.arm(index, at, overdue_at(at, wait_secs));
            }
            State::Sent(sent) => {
                let fate = Fate::Unanswered { sent_at: sent.at, why: Why::Overdue };
                sent.awaited = false;
                slot.reply.tell(&slot.request, fate);
            }
        }
    }

    /// Keeps a request that was sent as a record: nobody awaits it any more.
    fn let_go(&mut self, index: usize) {
        let Some(slot) = self.ledger.get_mut(index) else { return };
        if let State::Sent(sent) = &mut slot.state {
            sent.awaited = false;
        }
        if let Some(timer) = slot.timer.take() {
            self.timers.cancel(timer);
        }
    }

    /// Asks the server to take an acquire out of its queue.
    fn cancel(&mut self, index: usize) {
        let Some(slot) = self.ledger.get_mut(index) else { return };
        let acquire = matches!(slot.request.kind, Kind::Acquire { .. });
        if let State::Sent(sent) = &mut slot.state
            && self.extension
            && acquire
            && !sent.cancelled
        {
            sent.cancelled = true;
            self.outbox.push(Entry::Cancel { index, serial: slot.serial });
        }
    }

    /// Ends a request of which nothing was sent.
    fn unsent(&mut self, index: usize) {
        if let Some(mut slot) = self.take(index) {
            slot.reply.tell(&slot.request, Fate::Unsent);
        }
        self.note_stale();
    }

    fn drop_unsent(&mut self, index: usize) {
        drop(self.take(index));
        self.note_stale();
    }

    fn note_stale(&mut self) {
        let Self { ledger, outbox, .. } = self;
        outbox.note_stale(|entry| is_live(ledger, entry));
    }

    fn is_live(&self, entry: Entry) -> bool {
        is_live(&self.ledger, entry)
    }

    /// Takes a request out, timer and all.
    fn take(&mut self, index: usize) -> Option<ledger::Slot<R>> {
        let slot = self.ledger.remove(index)?;
        if let Some(timer) = slot.timer {
            self.timers.cancel(timer);
        }
        self.owed -= usize::from(slot.sent().is_some_and(|sent| sent.owed));
        Some(slot)
    }

    /// Sets the one timer of a request.
    fn arm(&mut self, index: usize, now: u64, at: u64) {
        let Some(slot) = self.ledger.get_mut(index) else { return };
        if let Some(timer) = slot.timer.take() {
            self.timers.cancel(timer);
        }
        // Whole seconds ahead of a moment near now, so that timers of one list come in order.
        let secs = u16::try_from(at.saturating_sub(now).div_ceil(SECOND)).unwrap_or(u16::MAX);
        let secs = secs.min(ticketing_timers::MAX_SECS);
        slot.timer = Some(self.timers.set(at.saturating_sub(u64::from(secs) * SECOND), secs, index));
    }
}

/// When an acquire that was handed over counts as lost.
fn overdue_at(at: u64, wait_secs: u8) -> u64 {
    at.saturating_add(u64::from(u16::from(wait_secs) + ANSWER_GRACE_SECS) * SECOND)
}

/// Whether an entry still has its request.
fn is_live<R>(ledger: &Ledger<R>, entry: Entry) -> bool {
    match entry {
        Entry::Request { index, serial } | Entry::Cancel { index, serial } => {
            ledger.get(index).is_some_and(|slot| slot.serial == serial)
        }
        Entry::KeepAlive => true,
    }
}
