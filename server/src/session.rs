//! One client connection, from its first frame to its end.
//!
//! A session owns the socket. It reads frames and hands them to the driver,
//! batch by batch, and writes what the driver puts into the connection's
//! [`Conn`]: everything of a turn in one write. It is one future that is polled
//! when bytes come, when the socket takes more, when the driver has something,
//! or when a deadline is over; an idle session holds no buffer and no timer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ticketing_protocol::handshake::Domain;
use ticketing_protocol::limits::{FRAME_TIMEOUT, PENDING_KEEP_ALIVE};
use ticketing_protocol::{ClientToServer, Decoder, Reason, ServerFrame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::conn::{Conn, Ending, Message, State};
use crate::farewell::{LINGER, half_close};
use crate::hub::Hub;
use crate::requests::Requests;
use crate::unsent::Unsent;
use crate::view::{Lead, View};

/// How long a client may leave too much output unread before it is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection that ends waits for what was decided to be committed: most of
/// [`LINGER`], of which the rest is for the last words.
const SETTLING: Duration = Duration::from_millis(1_500);

/// One read of a socket.
pub(crate) const READ_BYTES: usize = 16 * 1024;

/// A read of so many bytes without a request holds nothing but keep-alives...
const FLOOD_BYTES: usize = 1024;

/// ...and then the client is not read for this long: it may send them at any
/// rate, but what they cost is bounded.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// Reading is done on the spot, so the connections of a thread share one buffer.
    pub(crate) static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// One client connection.
pub(crate) struct Session<S> {
    stream: S,
    conn: Arc<Conn>,
    hub: Arc<Hub>,
    views: watch::Receiver<View>,
    /// The fencing domain that the client was greeted with.
    domain: Option<Domain>,
    /// The leader as the client was told.
    leader: Lead,
    own_address: String,
    decoder: Decoder<ClientToServer>,
    /// What was read and is not with the driver yet.
    requests: Requests,
    unsent: Unsent,
    unflushed: bool,
    /// When the frame that has begun must be complete.
    frame_deadline: Option<Instant>,
    /// Since when that frame could not become complete, because nothing was read.
    frame_held_since: Option<Instant>,
    /// Not reading until then, because of a flood of keep-alives.
    muted_until: Option<Instant>,
    /// When a byte last left, or the first request in flight came.
    quiet_since: Instant,
    /// Since when there has been too much unread output.
    full_since: Option<Instant>,
    /// Not reading, because of too many requests in flight.
    paused: bool,
    /// Nothing more is read: what came is served, then the connection ends.
    ending: Option<(Ending, Instant)>,
    /// The driver knows that this is the end.
    leaving: bool,
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What a session cannot do while it is polled.
enum Step {
    HandOver,
    Leave,
    /// At what the server is now.
    Look,
    End(Ending),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// A session that begins now, of a client that knows this server as
    /// `own_address`: its first frame tells who leads.
    pub(crate) fn new(stream: S, conn: Arc<Conn>, hub: Arc<Hub>, own_address: String) -> Self {
        let mut unsent = Unsent::default();
        let mut views = hub.view.subscribe();
        let View { domain, lead: leader } = views.borrow_and_update().clone();
        unsent.say(ServerFrame::Leader { address: leader.address(&own_address) });
        let decoder = Decoder::new(conn.extension());
        Self {
            stream,
            conn,
            hub,
            views,
            domain,
            leader,
            own_address,
            decoder,
            requests: Requests::default(),
            unsent,
            unflushed: false,
            frame_deadline: None,
            frame_held_since: None,
            muted_until: None,
            quiet_since: Instant::now(),
            full_since: None,
            paused: false,
            ending: None,
            leaving: false,
            alarm: None,
        }
    }

    /// Serves the connection until it ends. `pipelined` was read before;
    /// `stopping` completes when the server ends all connections.
    pub(crate) async fn run(mut self, pipelined: Vec<u8>, stopping: impl Future<Output = ()>) {
        self.take_in(&pipelined);
        drop(pipelined);
        let mut stopping = pin!(stopping);
        let ending = loop {
            let step = {
                let mut views = self.views.clone();
                let mut changed = pin!(views.changed());
                poll_fn(|cx| match self.poll(cx, stopping.as_mut()) {
                    Poll::Pending => changed.as_mut().poll(cx).map(|_| Step::Look),
                    step => step,
                })
                .await
            };
            match step {
                Step::Look => self.look(),
                Step::HandOver if self.hand_over().await => {}
                Step::Leave if self.leave().await => {}
                Step::HandOver | Step::Leave => break Ending::Broken,
                Step::End(ending) => break ending,
            }
        };
        self.finish(ending).await;
    }

    /// Tells the client what has changed.
    fn look(&mut self) {
        let View { domain, lead } = self.views.borrow_and_update().clone();
        if domain != self.domain {
            return self.end(Ending::Because(Reason::NotActive));
        }
        if self.leader != lead {
            self.leader = lead;
            self.unsent.say(ServerFrame::Leader { address: self.leader.address(&self.own_address) });
        }
    }

    /// Gives what was read to the driver; false: there is no driver any more.
    async fn hand_over(&mut self) -> bool {
        let requests = mem::take(&mut self.requests);
        self.hub.counters.requests.add(requests.len() as u64);
        let before = self.conn.hand_over(requests.owed());
        if before == Default::default() {
            self.quiet_since = Instant::now();
        }
        self.hub.driver.send(Message::Requests(Arc::clone(&self.conn), requests)).await.is_ok()
    }

    /// Lets the driver know that nothing more will come; false: there is no driver any more.
    async fn leave(&mut self) -> bool {
        self.leaving = true;
        self.hub.driver.send(Message::Leaving(Arc::clone(&self.conn))).await.is_ok()
    }

    fn poll(&mut self, cx: &mut Context<'_>, stopping: Pin<&mut impl Future<Output = ()>>) -> Poll<Step> {
        if self.ending.is_none() && stopping.poll(cx).is_ready() {
            self.end(Ending::Because(Reason::ShuttingDown));
        }
        if !self.requests.is_empty() {
            return Poll::Ready(Step::HandOver);
        }
        let Ok(state) = self.write(cx) else {
            return Poll::Ready(Step::End(Ending::Broken));
        };
        if let Some(ending) = state.ending {
            return Poll::Ready(Step::End(ending));
        }
        if let (Some((ending, _)), false) = (self.ending, state.busy) {
            if state.settled || state.owed == Default::default() || ending == Ending::Broken {
                return Poll::Ready(Step::End(ending));
            }
            if !self.leaving {
                return Poll::Ready(Step::Leave);
            }
        }
        let reading = self.may_read(&state);
        if reading && self.read(cx).is_ready() {
            if !self.requests.is_empty() {
                return Poll::Ready(Step::HandOver);
            }
            // There may be more, after the others have had their turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_deadlines(cx, &state, reading)
    }

    /// From now on nothing is read.
    fn end(&mut self, ending: Ending) {
        (self.frame_deadline, self.muted_until) = (None, None);
        self.ending = self.ending.or(Some((ending, Instant::now())));
    }

    /// Takes answers and writes them, as much as the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) -> std::io::Result<State> {
        loop {
            let state = self.conn.take(self.unsent.frames(), cx.waker());
            while !self.unsent.is_empty() {
                match Pin::new(&mut self.stream).poll_write(cx, self.unsent.rest())? {
                    Poll::Ready(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                    Poll::Ready(bytes) => {
                        self.unsent.advance(bytes);
                        self.unflushed = true;
                        self.quiet_since = Instant::now();
                    }
                    Poll::Pending => return Ok(state),
                }
            }
            if state.queued > 0 {
                continue;
            }
            if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
                self.unflushed = false;
            }
            return Ok(state);
        }
    }

    /// Whether more may be read now; keeps count of why not. While it may not,
    /// the clock of a frame stands still.
    fn may_read(&mut self, state: &State) -> bool {
        let full = self.unsent.rest().len() + state.queued > self.hub.limits.unread_output;
        if full && self.full_since.is_none() {
            self.full_since = Some(Instant::now());
            self.hub.counters.output_pauses.add(1);
        } else if !full {
            self.full_since = None;
        }
        let crowded = state.owed.others >= self.hub.limits.engine.in_flight_per_connection;
        if crowded && !self.paused {
            self.hub.counters.in_flight_pauses.add(1);
        }
        self.paused = crowded;
        let muted = self.muted_until.is_some_and(|until| Instant::now() < until);
        let reading = self.ending.is_none() && !state.busy && !full && !crowded && !muted;
        if let Some(deadline) = &mut self.frame_deadline {
            if !reading {
                self.frame_held_since.get_or_insert_with(Instant::now);
            } else if let Some(since) = self.frame_held_since.take() {
                *deadline += since.elapsed();
            }
        }
        reading
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => self.end(Ending::Quiet),
                Ok(()) => self.take_in(buffer.filled()),
                Err(_) => self.end(Ending::Broken),
            }
            Poll::Ready(())
        })
    }

    fn take_in(&mut self, bytes: &[u8]) {
        let received = self.hub.clock.now();
        let (requests, mut completed) = (&mut self.requests, false);
        let was_open = self.decoder.is_mid_frame();
        let outcome = self.decoder.feed(bytes, |frame| {
            completed = true;
            requests.push(frame, received);
        });
        // The clock of a frame runs from its first byte, whatever comes after.
        if !self.decoder.is_mid_frame() {
            self.frame_deadline = None;
        } else if completed || !was_open {
            self.frame_deadline = Some(Instant::now() + FRAME_TIMEOUT);
        }
        self.muted_until = (!completed && bytes.len() >= FLOOD_BYTES).then(|| Instant::now() + FLOOD_PAUSE);
        if let Err(malformed) = outcome {
            self.end(Ending::Because(malformed.reason()));
        }
    }

    /// Does what is due, and sees to it that the session is polled when the next thing is.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>, state: &State, reading: bool) -> Poll<Step> {
        loop {
            let now = Instant::now();
            let mut next: Option<Instant> = None;
            let mut due = |deadline: Instant| {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
                deadline <= now
            };
            if let Some((ending, since)) = self.ending {
                // The driver and the log have had their time.
                if due(since + SETTLING) {
                    return Poll::Ready(Step::End(ending));
                }
            }
            if let Some(since) = self.full_since
                && due(since.max(self.quiet_since) + STALL_TIMEOUT)
            {
                return Poll::Ready(Step::End(Ending::Unread));
            }
            if let Some(deadline) = self.frame_deadline
                && reading
                && due(deadline)
            {
                return Poll::Ready(Step::End(Ending::Because(Reason::FrameTimeout)));
            }
            if let Some(until) = self.muted_until
                && due(until)
            {
                self.muted_until = None;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let pending = state.owed != Default::default();
            if pending && self.unsent.is_empty() && due(self.quiet_since + PENDING_KEEP_ALIVE) {
                self.quiet_since = now;
                // If the socket does not take it, there is enough on its way already.
                if let Poll::Ready(Err(_)) = Pin::new(&mut self.stream).poll_write(cx, b"\n") {
                    return Poll::Ready(Step::End(Ending::Broken));
                }
                self.unflushed = true;
                if let Poll::Ready(Err(_)) = Pin::new(&mut self.stream).poll_flush(cx) {
                    return Poll::Ready(Step::End(Ending::Broken));
                }
                continue;
            }
            let Some(next) = next else { return Poll::Pending };
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(next)));
            // An alarm that is set too early costs one look; setting it anew each time costs more.
            if next < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(next);
            }
            ready!(alarm.as_mut().poll(cx));
        }
    }

    /// Tells the driver, lets the last bytes leave, and gives back what never left.
    async fn finish(&mut self, ending: Ending) {
        self.conn.close(self.unsent.frames());
        // Without a driver the server itself is ending.
        let _ = self.hub.driver.send(Message::Closed(self.conn.id)).await;
        let reason = match ending {
            Ending::Quiet | Ending::Broken => None,
            Ending::Because(reason) => Some(reason),
            Ending::Unread => {
                self.give_back().await;
                Some(Reason::Overloaded)
            }
        };
        if let Some(reason) = reason {
            self.hub.counters.errors(reason).add(1);
            self.unsent.say_why(reason);
        }
        if ending != Ending::Broken {
            let since = self.ending.map_or_else(Instant::now, |(_, since)| since);
            let last_words = async {
                self.write_all().await?;
                half_close(&mut self.stream).await
            };
            // Whoever does not take them in this time goes without.
            let _ = timeout_at(since + LINGER, last_words).await;
        }
        self.give_back().await;
    }

    async fn write_all(&mut self) -> std::io::Result<()> {
        while !self.unsent.is_empty() {
            let rest = self.unsent.rest();
            match poll_fn(|cx| Pin::new(&mut self.stream).poll_write(cx, rest)).await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                bytes => self.unsent.advance(bytes),
            }
        }
        Ok(())
    }

    /// Throws away what never left. A grant of which a byte may have left stays:
    /// the client may hold it.
    async fn give_back(&mut self) {
        let lost = self.unsent.cut(self.conn.extension());
        if !lost.is_empty() {
            let _ = self.hub.driver.send(Message::Lost(lost)).await;
        }
    }
}

#[cfg(test)]
mod tests;
