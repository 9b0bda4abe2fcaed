//! The one task that owns a socket: it moves bytes and commands in and out of a
//! [`Session`], tells the session the time, and decides nothing itself.
//!
//! Callers push to one queue and wake the task once a burst; whatever has come
//! by then leaves in one write. Reading goes before writing: a server's last
//! word (it does not lead, it is closing) may show that a request still unsent
//! had better go elsewhere.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::{Caller, Command, Link};
use crate::broker::Shared;
use crate::clock;
use crate::session::{Fate, Reply as _, Session};
use crate::trouble::{At, Trouble};

/// As much as one read takes.
const READ_BYTES: usize = 32 * 1024;

/// How many commands are taken before the time and the socket are looked at again.
const BATCH: usize = 512;

/// Deadlines are counted on a clock that goes on while the machine sleeps, the
/// runtime's timer is not: after a wake-up it must not be late for long.
const LONGEST_SLEEP: Duration = Duration::from_secs(15);

/// A socket whose bytes count as handed over when it took them.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Whether a write that fails may have let bytes out before it did.
    const FAILED_WRITE_MAY_LEAK: bool;
}

impl Socket for tokio::net::TcpStream {
    const FAILED_WRITE_MAY_LEAK: bool = false;
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for tokio_rustls::client::TlsStream<S> {
    // It encrypts and sends within one call, and reports only the failure.
    const FAILED_WRITE_MAY_LEAK: bool = true;
}

/// Drives one session to its end, and resolves to the reason of the end after
/// every request has been told its fate. The same happens when it is dropped,
/// as a runtime does with its tasks.
pub(crate) struct Driver<S> {
    socket: S,
    session: Session<Caller>,
    queue: mpsc::UnboundedReceiver<Command>,
    batch: Vec<Command>,
    incoming: Box<[u8]>,
    link: Arc<Link>,
    shared: Arc<Shared>,
    /// The server's last word is that another node leads.
    elsewhere: bool,
    /// Bytes may be waiting inside the socket, encrypted.
    unflushed: bool,
    alarm: Pin<Box<Sleep>>,
    /// What the alarm is set to.
    alarm_at: u64,
    many_threads: bool,
    /// The write that is due has been put off.
    waited: bool,
    over: bool,
}

impl<S: Socket> Driver<S> {
    /// Takes over a socket behind its handshake, with what the server has sent
    /// since, and makes the session known. `None`: the broker has stopped.
    ///
    /// # Errors
    /// The server's first frames end the session at once.
    pub(crate) fn open(
        socket: S,
        first: &[u8],
        link: Arc<Link>,
        queue: mpsc::UnboundedReceiver<Command>,
        shared: Arc<Shared>,
    ) -> Result<Option<Self>, Trouble> {
        let now = clock::now();
        let mut session = Session::new(now, link.greeted.extension);
        session.read(now, first)?;
        let Some(elsewhere) = shared.directory.opened(&link, session.take_word()) else { return Ok(None) };
        Ok(Some(Self {
            socket,
            session,
            queue,
            batch: Vec::new(),
            incoming: vec![0; READ_BYTES].into_boxed_slice(),
            link,
            shared,
            elsewhere,
            unflushed: false,
            alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
            alarm_at: 0,
            many_threads: Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread,
            waited: false,
            over: false,
        }))
    }

    /// Gets done whatever can be done now.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), Trouble> {
        loop {
            let now = clock::now();
            let mut progress = self.read(cx, now)?;
            progress |= self.take_commands(cx, now)?;
            if self.waits_for_more(cx) {
                return Ok(());
            }
            self.session.on_time(now)?;
            progress |= self.write(cx, now)?;
            if !progress && !self.alarm_rang(cx) {
                return Ok(());
            }
        }
    }

    /// Puts a write off once, behind the tasks that the last read has woken: what
    /// they ask for leaves in the same write. On a runtime of one thread they have
    /// run already; on several, each request would find this task asleep and leave
    /// alone, at the price of two wake-ups.
    fn waits_for_more(&mut self, cx: &mut Context<'_>) -> bool {
        self.waited = self.many_threads && !self.waited && self.session.has_unsent();
        if self.waited {
            cx.waker().wake_by_ref();
        }
        self.waited
    }

    /// The polite end of the stream.
    pub(crate) async fn shut_down(&mut self) {
        // Whatever it is, the stream is over.
        let _ = self.socket.shutdown().await;
    }

    fn read(&mut self, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble> {
        let mut buffer = ReadBuf::new(&mut self.incoming);
        match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(Trouble::Io(error)),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(Trouble::Closed),
            Poll::Ready(Ok(())) => {}
        }
        let read = self.session.read(now, buffer.filled());
        if let Some(word) = self.session.take_word() {
            // Known to all before anyone is sent back to choose again.
            self.elsewhere = self.shared.directory.heard(&self.link, word);
            if self.elsewhere {
                self.session.give_back_unsent();
            }
        }
        read.map(|()| true)
    }

    fn take_commands(&mut self, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble> {
        if self.queue.poll_recv_many(cx, &mut self.batch, BATCH).is_pending() {
            return Ok(false);
        }
        let mut stop = false;
        for command in self.batch.drain(..) {
            match command {
                Command::Submit(request, mut caller) if self.elsewhere => caller.tell(&request, Fate::Unsent),
                Command::Submit(request, caller) => self.session.submit(now, request, caller),
                Command::GiveUp { owner, key } => self.session.give_up(owner, &key),
                Command::WindDown => self.session.wind_down(),
                Command::Stop => stop = true,
            }
        }
        if stop { Err(Trouble::Stopped) } else { Ok(true) }
    }

    fn write(&mut self, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble> {
        let mut progress = false;
        loop {
            let bytes = self.session.transmit(now);
            if bytes.is_empty() {
                break;
            }
            match Pin::new(&mut self.socket).poll_write(cx, bytes) {
                Poll::Pending => {
                    self.session.write_blocked(now);
                    return Ok(progress);
                }
                Poll::Ready(Ok(0)) => return Err(Trouble::Io(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(taken)) => self.session.wrote(taken),
                Poll::Ready(Err(error)) => {
                    if S::FAILED_WRITE_MAY_LEAK {
                        self.session.wrote_perhaps();
                    }
                    return Err(Trouble::Io(error));
                }
            }
            self.unflushed = true;
            progress = true;
        }
        if self.unflushed {
            match Pin::new(&mut self.socket).poll_flush(cx) {
                Poll::Pending => {
                    self.session.write_blocked(now);
                    return Ok(progress);
                }
                Poll::Ready(flushed) => flushed.map_err(Trouble::Io)?,
            }
            self.unflushed = false;
        }
        self.session.write_idle();
        Ok(progress)
    }

    /// Sets the alarm to the session's next deadline, and tells whether it rang.
    ///
    /// Deadlines move away with every request. An alarm that is early costs one
    /// idle look now and then; moving it along each time would cost every request.
    fn alarm_rang(&mut self, cx: &mut Context<'_>) -> bool {
        let next = self.session.next_deadline();
        if next < self.alarm_at || self.alarm.is_elapsed() {
            let pause = Duration::from_nanos(next.saturating_sub(clock::now())).min(LONGEST_SLEEP);
            self.alarm.as_mut().reset(Instant::now() + pause);
            self.alarm_at = next;
        }
        self.alarm.as_mut().poll(cx).is_ready()
    }
}

impl<S> Driver<S> {
    /// Ends the session: first nobody chooses it any more, then everyone is told.
    fn finish(&mut self, what: Trouble) -> Arc<At<Trouble>> {
        self.over = true;
        let why = Arc::new(At { address: Arc::clone(&self.link.address), what });
        self.shared.directory.lost(&self.link, &why);
        self.session.end(&why);
        self.queue.close();
        while let Ok(command) = self.queue.try_recv() {
            if let Command::Submit(request, mut caller) = command {
                caller.tell(&request, Fate::Unsent);
            }
        }
        why
    }
}

impl<S: Socket> Future for Driver<S> {
    type Output = Arc<At<Trouble>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.turn(cx) {
            Ok(()) => Poll::Pending,
            Err(trouble) => Poll::Ready(self.finish(trouble)),
        }
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        if !self.over {
            self.finish(Trouble::RuntimeGone);
        }
    }
}
