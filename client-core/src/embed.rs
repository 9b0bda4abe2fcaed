//! A broker with a thread of its own: what the clients of other languages, and
//! [`blocking`](crate::blocking), are built on.
//!
//! A language that has no Rust runtime starts an [`Embedded`] broker, submits
//! futures of its [`broker`](Embedded::broker), and is called back.
//!
//! ```
//! # let server = ticketing_test_support::Server::start(&[]);
//! # let address = server.addr().to_string();
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use ticketing::TicketBroker;
//! use ticketing::embed::Embedded;
//!
//! let embedded = Embedded::start(TicketBroker::builder().address(address))?;
//! let second = Duration::from_secs(1);
//! let (told, outcome) = mpsc::channel();
//! embedded.submit(embedded.broker().acquire("seat:12", second, second), move |outcome| {
//!     let _ = told.send(outcome);
//! });
//! let ticket = outcome.recv()?.ok_or("the broker was closed")??;
//! assert_eq!(ticket.key(), "seat:12");
//! embedded.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread, ThreadId};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::broker::{Phase, Shared};
use crate::error::Invalid;
use crate::{Builder, TicketBroker, TicketError};

/// A broker whose connections and submissions live on one thread of its own.
///
/// Cheap to clone; all clones are one. The thread ends with
/// [`close`](Embedded::close), or within seconds when the last clone, ticket
/// and submission is gone.
#[derive(Clone, Debug)]
pub struct Embedded {
    broker: TicketBroker,
    home: Arc<Home>,
}

#[derive(Debug)]
struct Home {
    id: ThreadId,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
    /// How many submissions are under way.
    under_way: Arc<AtomicUsize>,
    intake: Arc<Intake>,
}

/// What was submitted and has not begun. The thread is woken once for all that
/// lies here, since that costs a system call.
struct Intake {
    /// `None`: the thread has ended.
    jobs: Mutex<Option<Vec<Job>>>,
    bell: Notify,
}

/// Spawns the future of a submission; on the broker's thread.
type Job = Box<dyn FnOnce() + Send>;

/// A future that was submitted.
#[derive(Clone, Debug)]
pub struct Submission(Arc<Mutex<Course>>);

/// How far a submission is.
#[derive(Debug)]
enum Course {
    Waiting,
    Begun(AbortHandle),
    Cancelled,
}

/// What the thread tells when it has started.
type Started = Result<TicketBroker, TicketError>;

impl Embedded {
    /// Starts the thread. Returns at once and connects in the background.
    ///
    /// # Errors
    /// As [`Builder::build`]; and `InvalidInput` if the thread cannot be started.
    pub fn start(builder: Builder) -> Result<Self, TicketError> {
        let (answer, started) = mpsc::channel();
        let under_way = Arc::new(AtomicUsize::new(0));
        let intake = Arc::new(Intake::new());
        let (submissions, jobs) = (Arc::clone(&under_way), Arc::clone(&intake));
        let thread = thread::Builder::new()
            .name("ticketing".to_owned())
            .spawn(move || run(builder, &answer, &submissions, &jobs))
            .map_err(Invalid::NoThread)?;
        // The thread answers first of all.
        let gone = |_| Invalid::NoThread(std::io::ErrorKind::BrokenPipe.into());
        let broker = started.recv().map_err(gone)??;
        let id = thread.thread().id();
        let (thread, process) = (Mutex::new(Some(thread)), std::process::id());
        let home = Home { id, thread, process, under_way, intake };
        Ok(Self { broker, home: Arc::new(home) })
    }

    /// The broker. Its futures may be polled on any thread; this one's does their IO.
    #[must_use]
    pub fn broker(&self) -> &TicketBroker {
        &self.broker
    }

    /// Runs a future to its end on the broker's thread, then calls `done` there,
    /// exactly once: with its outcome, or with `None` if it was
    /// [cancelled](Submission::cancel) or the broker was closed before. A close
    /// lets what is under way come to its own end: whether an acquire was sent
    /// decides between `Closed` and `Indeterminate`.
    ///
    /// Neither may block: all connections wait meanwhile.
    pub fn submit<F, D>(&self, future: F, done: D) -> Submission
    where
        F: Future<Output: Send> + Send + 'static,
        D: FnOnce(Option<F::Output>) + Send + 'static,
    {
        let submission = self.submit_later(future, done);
        self.flush();
        submission
    }

    /// The same, but it begins only with the next [`flush`](Embedded::flush), or
    /// the next submission that needs none: for whoever submits many at once. A cancel
    /// before that is told then, too.
    pub fn submit_later<F, D>(&self, future: F, done: D) -> Submission
    where
        F: Future<Output: Send> + Send + 'static,
        D: FnOnce(Option<F::Output>) + Send + 'static,
    {
        let under_way = UnderWay::begin(&self.home.under_way);
        let mut told = Told { done: Some(done), outcome: PhantomData, _under_way: under_way };
        let submission = Submission(Arc::new(Mutex::new(Course::Waiting)));
        let course = Arc::clone(&submission.0);
        self.home.intake.push(Box::new(move || {
            let mut course = lock(&course);
            if matches!(*course, Course::Waiting) {
                let task = tokio::spawn(async move {
                    let outcome = future.await;
                    told.tell(Some(outcome));
                });
                *course = Course::Begun(task.abort_handle());
            }
        }));
        submission
    }

    /// Begins what was [submitted for later](Embedded::submit_later).
    pub fn flush(&self) {
        self.home.intake.bell.notify_one();
    }

    /// Whether this is the broker's own thread, on which `done` is called and
    /// nothing may wait for the broker.
    #[must_use]
    pub fn is_own_thread(&self) -> bool {
        thread::current().id() == self.home.id
    }

    /// Whether this process is a fork of the one that started the broker: its
    /// thread and its connections are not here, and no future of it will end.
    /// Such a broker, and what came of it, should be forgotten, not dropped.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        std::process::id() != self.home.process
    }

    /// Ends the broker in order, its thread included; see [`TicketBroker::close`].
    /// On the broker's own thread it only begins that.
    pub fn close(&self) {
        if self.is_own_thread() {
            self.broker.shared().directory.advance(Phase::Draining);
            return;
        }
        block_on(self.broker.close());
        let thread = lock(&self.home.thread).take();
        if let Some(thread) = thread {
            // It has nothing left to do; if it panicked, that was its last act.
            let _ = thread.join();
        }
    }
}

impl Submission {
    /// Drops the future, as the caller of an async function does who loses interest: what
    /// was not sent never is, a waiter leaves its queue, a late grant is given back.
    /// Harmless when it is over.
    pub fn cancel(&self) {
        let course = std::mem::replace(&mut *lock(&self.0), Course::Cancelled);
        if let Course::Begun(task) = course {
            task.abort();
        }
    }
}

/// How often what is under way is polled once the broker is done. All of it is
/// awake by then and ends at its first poll, unless it is not the broker's.
const LAST_POLLS: usize = 64;

/// The whole life of a broker's thread.
fn run(builder: Builder, answer: &mpsc::Sender<Started>, under_way: &AtomicUsize, intake: &Intake) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = answer.send(Err(Invalid::NoThread(error).into()));
            return;
        }
    };
    runtime.block_on(async {
        let built = builder.build();
        let shared: Option<Arc<Shared>> = built.as_ref().ok().map(TicketBroker::shared);
        // Whoever asked may have gone: then the broker ends by being dropped.
        let _ = answer.send(built);
        if let Some(shared) = shared {
            tokio::select! {
                () = shared.reached(Phase::Done) => {}
                () = intake.serve() => {}
            }
        }
        intake.close();
        for _ in 0..LAST_POLLS {
            if under_way.load(Ordering::Acquire) == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
    // A name that is still being resolved must not hold the thread.
    runtime.shutdown_background();
}

impl Intake {
    fn new() -> Self {
        Self { jobs: Mutex::new(Some(Vec::new())), bell: Notify::new() }
    }

    /// After the end of the thread a job is dropped, which calls back.
    fn push(&self, job: Job) {
        let late = match &mut *lock(&self.jobs) {
            Some(jobs) => {
                jobs.push(job);
                None
            }
            None => Some(job),
        };
        // Not under the lock: whoever is called back may submit again.
        drop(late);
    }

    /// Begins what comes, for ever.
    async fn serve(&self) {
        loop {
            self.bell.notified().await;
            let jobs = lock(&self.jobs).as_mut().map(std::mem::take);
            for job in jobs.into_iter().flatten() {
                job();
            }
        }
    }

    /// Takes nothing any more. What has come begins all the same, and so comes to an end
    /// of its own.
    fn close(&self) {
        let last = lock(&self.jobs).take();
        for job in last.into_iter().flatten() {
            job();
        }
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").finish_non_exhaustive()
    }
}

/// Calls back once, whatever becomes of its task.
struct Told<T, D: FnOnce(Option<T>)> {
    done: Option<D>,
    outcome: PhantomData<fn(T)>,
    /// Ends after the call.
    _under_way: UnderWay,
}

/// Counts a submission as long as it lives.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T, D: FnOnce(Option<T>)> Told<T, D> {
    fn tell(&mut self, outcome: Option<T>) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl<T, D: FnOnce(Option<T>)> Drop for Told<T, D> {
    fn drop(&mut self) {
        self.tell(None);
    }
}

/// Nothing here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future of a broker to its end on this thread; the broker's thread does its IO.
///
/// Not for that thread itself, where it would wait for ever; see
/// [`is_own_thread`](Embedded::is_own_thread).
///
/// ```
/// # let server = ticketing_test_support::Server::start(&[]);
/// # let address = server.addr().to_string();
/// use std::time::Duration;
/// use ticketing::TicketBroker;
/// use ticketing::embed::{Embedded, block_on};
///
/// let embedded = Embedded::start(TicketBroker::builder().address(address))?;
/// block_on(embedded.broker().wait_ready(Duration::from_secs(10)))?;
/// embedded.close();
/// # Ok::<(), ticketing::TicketError>(())
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
