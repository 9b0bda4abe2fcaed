//! The task that owns a socket, on a socket that takes as many bytes as the
//! test says and then fails.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use super::driver::Socket;
use super::{Answer, Caller, Command, Config, Driver, Greeted, Link};
use crate::Token;
use crate::broker::{Directory, Lane, Shared};
use crate::clock::{self, SECOND};
use crate::session::{Kind, Request, Why};

/// Takes `room` bytes, then fails or blocks. Never has anything to read.
#[derive(Debug)]
struct Cutting<const LEAKY: bool> {
    room: usize,
    step: usize,
    then_fail: bool,
    taken: Arc<Mutex<Vec<u8>>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl<const LEAKY: bool> Socket for Cutting<LEAKY> {
    const FAILED_WRITE_MAY_LEAK: bool = LEAKY;
}

impl<const LEAKY: bool> AsyncRead for Cutting<LEAKY> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        *self.waker.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<const LEAKY: bool> AsyncWrite for Cutting<LEAKY> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let take = bytes.len().min(self.room).min(self.step);
        if take == 0 {
            return if self.then_fail {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            } else {
                Poll::Pending
            };
        }
        self.room -= take;
        self.taken.lock().unwrap().extend_from_slice(&bytes[..take]);
        Poll::Ready(Ok(take))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn shared() -> Arc<Shared> {
    let config = Config { token: Token::default(), tls: None, expected_domain: None };
    let directory = Directory::new(["here:1".into()]);
    let (compensations, _) = mpsc::unbounded_channel();
    Arc::new(Shared::new(tokio::runtime::Handle::current(), config, directory, 100, compensations))
}

fn link() -> (Arc<Link>, mpsc::UnboundedReceiver<Command>) {
    let greeted = Greeted { extension: true, ..Greeted::default() };
    Link::new(0, "here:1".into(), greeted)
}

fn acquire(shared: &Arc<Shared>, link: &Link, owner: u64) -> oneshot::Receiver<Answer> {
    let (caller, answer) = Caller::new(shared.admit(Lane::Acquire).unwrap());
    let kind = Kind::Acquire { owner, wait_secs: u8::MAX, lease_secs: 10 };
    let request = Request { key: "seat:12".into(), kind, until: clock::now() + 30 * SECOND };
    link.send(Command::Submit(request, caller)).unwrap();
    answer
}

fn is_unsent(answer: &Answer) -> bool {
    matches!(answer, Answer::Unsent(_))
}

fn is_lost(answer: &Answer) -> bool {
    matches!(answer, Answer::Unanswered(unanswered) if matches!(unanswered.why, Why::Lost(_)))
}

/// The length of an acquire of "seat:12".
const FRAME: usize = 1 + 10 + 7 + 1;

/// Cuts a connection with two acquires after `cut` bytes, taken `step` by `step`.
async fn cut_after<const LEAKY: bool>(cut: usize, step: usize) -> (Answer, Answer, usize) {
    let shared = shared();
    let (link, queue) = link();
    let taken = Arc::default();
    let socket: Cutting<LEAKY> =
        Cutting { room: cut, step, then_fail: true, taken: Arc::clone(&taken), waker: Arc::default() };
    let driver = Driver::open(socket, b"", Arc::clone(&link), queue, Arc::clone(&shared)).unwrap().unwrap();
    let (first, second) = (acquire(&shared, &link, 1), acquire(&shared, &link, 2));
    driver.await;
    assert!(shared.pick().is_none(), "nobody chooses a session that is over");
    let answers = (first.await.unwrap(), second.await.unwrap());
    let taken = taken.lock().unwrap().len();
    (answers.0, answers.1, taken)
}

#[tokio::test]
async fn only_what_began_to_leave_is_lost() {
    for step in [1, 5, usize::MAX] {
        for cut in 0..2 * FRAME {
            let (first, second, taken) = cut_after::<false>(cut, step).await;
            assert_eq!(taken, cut, "not one byte more than the socket took");
            assert!(if cut == 0 { is_unsent(&first) } else { is_lost(&first) }, "{cut}/{step}: {first:?}");
            assert!(
                if cut <= FRAME { is_unsent(&second) } else { is_lost(&second) },
                "{cut}/{step}: {second:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_socket_that_may_have_leaked_loses_what_it_was_offered() {
    for cut in [0, 1, FRAME, FRAME + 1] {
        let (first, second, _) = cut_after::<true>(cut, usize::MAX).await;
        assert!(is_lost(&first) && is_lost(&second), "{cut}");
    }
}

#[tokio::test]
async fn a_task_that_is_dropped_tells_everyone_the_truth() {
    let shared = shared();
    let (link, queue) = link();
    let socket: Cutting<false> = Cutting {
        room: FRAME,
        step: usize::MAX,
        then_fail: false,
        taken: Arc::default(),
        waker: Arc::default(),
    };
    let mut driver =
        Driver::open(socket, b"", Arc::clone(&link), queue, Arc::clone(&shared)).unwrap().unwrap();
    let sent = acquire(&shared, &link, 1);
    let offered = acquire(&shared, &link, 2);
    let polled = Pin::new(&mut driver).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let queued = acquire(&shared, &link, 3);
    drop(driver);
    assert!(is_lost(&sent.await.unwrap()));
    assert!(is_unsent(&offered.await.unwrap()));
    assert!(is_unsent(&queued.await.unwrap()));
    let (caller, _answer) = Caller::new(shared.admit(Lane::Acquire).unwrap());
    let request = Request { key: "k".into(), kind: Kind::Release { token: 1 }, until: u64::MAX };
    assert!(link.send(Command::Submit(request, caller)).is_err(), "nothing is queued for nobody");
}

#[tokio::test]
async fn a_burst_wakes_the_task_once() {
    let shared = shared();
    let (link, queue) = link();
    let socket: Cutting<false> = Cutting {
        room: usize::MAX,
        step: usize::MAX,
        then_fail: false,
        taken: Arc::default(),
        waker: Arc::default(),
    };
    let taken = Arc::clone(&socket.taken);
    let mut driver =
        Driver::open(socket, b"", Arc::clone(&link), queue, Arc::clone(&shared)).unwrap().unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut driver).poll(&mut cx).is_pending());
    let woken = wakes.0.load(std::sync::atomic::Ordering::SeqCst);
    let answers = (1..=64).map(|owner| acquire(&shared, &link, owner)).collect::<Vec<_>>();
    assert_eq!(wakes.0.load(std::sync::atomic::Ordering::SeqCst) - woken, 1);
    assert!(Pin::new(&mut driver).poll(&mut cx).is_pending());
    assert_eq!(taken.lock().unwrap().len(), 64 * FRAME, "one turn sends them all");
    drop(answers);
}

#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}
