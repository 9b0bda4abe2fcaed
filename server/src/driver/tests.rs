use std::sync::atomic::{AtomicU64, Ordering};

use ticketing_engine::{Config, SECOND};
use ticketing_protocol::{ClientFrame, Extension, ServerFrame};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};

use super::*;
use crate::requests::Requests;
use crate::testing::{answer, key, paused_clock};

/// A driver, with the test in the place of the sessions.
struct Bench {
    driver: mpsc::Sender<Message>,
    published: Published,
    clock: Clock,
    task: JoinHandle<()>,
}

impl Bench {
    fn start() -> Self {
        Self::with(paused_clock())
    }

    fn with(clock: Clock) -> Self {
        let (sender, driver) = driver(clock);
        let published = driver.published.clone();
        let task = tokio::spawn(driver.run());
        Self { driver: sender, published, clock, task }
    }

    /// Hands requests over as a session does.
    async fn send(&self, conn: &Arc<Conn>, frames: &[ClientFrame<'_>]) {
        let mut requests = Requests::default();
        frames.iter().for_each(|frame| requests.push(*frame, self.clock.now()));
        conn.hand_over(requests.owed());
        self.driver.send(Message::Requests(Arc::clone(conn), requests)).await.unwrap();
    }

    /// What the connection was told so far, once the driver has nothing to do.
    async fn told(&self, conn: &Conn) -> Vec<u8> {
        settle().await;
        let mut frames = Vec::new();
        let state = conn.take(&mut frames, Waker::noop());
        assert!(!state.busy);
        frames
    }
}

fn driver(clock: Clock) -> (mpsc::Sender<Message>, Driver) {
    let (sender, inbox) = mpsc::channel(64);
    let engine = Config::default();
    let mut decider = Decider::new(engine);
    decider.take_office(0, Office { term: 0, run: 0 }, Engine::new(engine));
    let driver = Driver {
        decider,
        engine,
        commit: Commit::Memory,
        clock,
        inbox,
        published: Published::default(),
        view: watch::Sender::new(View { domain: Some(Domain([7; 16])), lead: Lead::Here }),
        last_office: None,
    };
    (sender, driver)
}

async fn settle() {
    for _ in 0..16 {
        yield_now().await;
    }
}

fn conn(id: u64) -> Arc<Conn> {
    Arc::new(Conn::new(ConnId(id), Extension::Off))
}

fn acquire(owner: u64, wait: u8) -> ClientFrame<'static> {
    ClientFrame::Acquire { wait, lease: 10, owner, key: key("k") }
}

fn release(token: u64) -> ClientFrame<'static> {
    ClientFrame::Release { token, key: key("k") }
}

fn granted(token: u64, owner: u64) -> Vec<u8> {
    answer(ServerFrame::Granted { token, owner, key: key("k") })
}

fn released(token: u64) -> Vec<u8> {
    answer(ServerFrame::Released { token, key: key("k") })
}

#[tokio::test(start_paused = true)]
async fn answers_go_to_whom_they_belong_in_the_order_of_the_decisions() {
    let bench = Bench::start();
    let (one, two) = (conn(1), conn(2));
    bench.send(&one, &[acquire(10, 0), acquire(11, 0), acquire(12, 9)]).await;
    bench.send(&two, &[release(1), acquire(20, 9), release(1)]).await;
    let timed_out = answer(ServerFrame::TimedOut { owner: 11, key: key("k") });
    assert_eq!(bench.told(&one).await, [granted(1, 10), timed_out, granted(2, 12)].concat());
    let not_held = answer(ServerFrame::NotHeld { token: 1, key: key("k") });
    assert_eq!(bench.told(&two).await, [released(1), not_held].concat());
    let report = bench.published.read();
    assert_eq!((report.engine.held, report.engine.waiters, report.next_token), (1, 1, 3));
}

#[tokio::test(start_paused = true)]
async fn waits_and_leases_run_out_on_time_and_never_early() {
    let bench = Bench::start();
    let (one, two) = (conn(1), conn(2));
    bench.send(&one, &[acquire(1, 0), acquire(2, 3)]).await;
    bench.send(&two, &[acquire(3, 60)]).await;
    assert_eq!(bench.told(&one).await, granted(1, 1));
    advance(Duration::from_millis(2_999)).await;
    assert_eq!(bench.told(&one).await, b"");
    advance(Duration::from_millis(2)).await;
    assert_eq!(bench.told(&one).await, answer(ServerFrame::TimedOut { owner: 2, key: key("k") }));
    advance(Duration::from_millis(6_998)).await;
    assert_eq!(bench.told(&two).await, b"");
    advance(Duration::from_millis(2)).await;
    assert_eq!(bench.told(&two).await, granted(2, 3));
    assert_eq!(bench.published.read().engine.expired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_a_connection_that_just_ended_goes_to_the_next_in_the_queue() {
    let bench = Bench::start();
    let (holder, ended, next) = (conn(1), conn(2), conn(3));
    bench.send(&holder, &[acquire(1, 0)]).await;
    bench.send(&ended, &[acquire(2, 60), acquire(3, 60)]).await;
    bench.send(&next, &[acquire(4, 60)]).await;
    settle().await;
    // Its session has closed, and the driver has not heard of it yet.
    ended.close(&mut Vec::new());
    bench.send(&holder, &[release(1)]).await;
    assert_eq!(bench.told(&next).await, granted(4, 4));
    bench.driver.send(Message::Closed(ended.id)).await.unwrap();
    settle().await;
    let engine = bench.published.read().engine;
    assert_eq!((engine.held, engine.waiters, engine.given_back), (1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_closed_connection_leave_and_lost_grants_are_given_back() {
    let bench = Bench::start();
    let (one, two) = (conn(1), conn(2));
    bench.send(&one, &[acquire(1, 0), acquire(2, 60)]).await;
    bench.send(&two, &[acquire(3, 60)]).await;
    assert_eq!(bench.told(&one).await, granted(1, 1));
    bench.driver.send(Message::Closed(one.id)).await.unwrap();
    assert_eq!(bench.told(&two).await, b"", "the grant may have arrived: it stays");
    bench.driver.send(Message::Lost(vec![LostGrant { token: 1, key: b"k"[..].into() }])).await.unwrap();
    assert_eq!(bench.told(&two).await, granted(2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lease_runs_out_while_the_machine_sleeps() {
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    fn clock_that_goes_on() -> Nanos {
        paused_clock().now() + SLEPT.load(Ordering::Relaxed)
    }

    let bench = Bench::with(Clock::of(clock_that_goes_on));
    let (one, two) = (conn(1), conn(2));
    bench.send(&one, &[acquire(1, 0)]).await;
    bench.send(&two, &[acquire(2, 200)]).await;
    settle().await;
    // The timers of the runtime have not moved.
    SLEPT.store(100 * SECOND, Ordering::Relaxed);
    let start = Instant::now();
    while bench.told(&two).await.is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() <= Duration::from_millis(1_050), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn draining_refuses_what_is_new_and_serves_releases() {
    let bench = Bench::start();
    let one = conn(1);
    bench.send(&one, &[acquire(1, 0), acquire(2, 60)]).await;
    assert_eq!(bench.told(&one).await, granted(1, 1));
    bench.driver.send(Message::Drain).await.unwrap();
    let busy = |owner| answer(ServerFrame::Busy { owner, key: key("k") });
    assert_eq!(bench.told(&one).await, busy(2));
    bench.send(&one, &[acquire(3, 60), release(1)]).await;
    assert_eq!(bench.told(&one).await, [busy(3), released(1)].concat());
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_last_sender() {
    let bench = Bench::start();
    drop(bench.driver);
    bench.task.await.unwrap();
}

/// What a node that does not lead says.
#[tokio::test(start_paused = true)]
async fn who_does_not_lead_refuses_and_tells_who_does() {
    let (sender, mut driver) = driver(paused_clock());
    driver.decider.leave_office(0);
    driver.view.send_modify(|view| view.lead = Lead::There("leader:1".into()));
    let published = driver.published.clone();
    let task = tokio::spawn(driver.run());
    let bench = Bench { driver: sender, published, clock: paused_clock(), task };
    let one = conn(1);
    bench.send(&one, &[acquire(1, 9), release(7)]).await;
    let busy = answer(ServerFrame::Busy { owner: 1, key: key("k") });
    let moved = answer(ServerFrame::Moved { address: "leader:1" });
    assert_eq!(bench.told(&one).await, [busy, moved.clone(), moved].concat());
    assert!(!bench.published.read().in_office);
}
