use ticketing_engine::{Answer, ConnId, Request};
use ticketing_protocol::Extension;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};

use super::*;
use crate::config::Limits;
use crate::conn::LostGrant;
use crate::testing::{acquire, answer, config, hub_with, key, release, request};

/// A session, with the test in the place of both the client and the driver.
struct Bench {
    client: DuplexStream,
    driver: mpsc::Receiver<Message>,
    conn: Arc<Conn>,
    hub: Arc<Hub>,
    stop: Option<oneshot::Sender<()>>,
    session: JoinHandle<()>,
}

const MORE: usize = 1 << 20;

impl Bench {
    fn start() -> Self {
        Self::with(MORE, Extension::Off, |_| {})
    }

    /// `room`: bytes that fit between the session and the client.
    fn with(room: usize, extension: Extension, change: impl Fn(&mut Limits)) -> Self {
        let config = config();
        let mut limits = config.limits;
        change(&mut limits);
        let (hub, driver) = hub_with(&config, limits);
        let (client, server) = duplex(room);
        let conn = Arc::new(Conn::new(ConnId(1), extension));
        let session = Session::new(server, Arc::clone(&conn), Arc::clone(&hub), "me:1".to_owned());
        let (stop, stopped) = oneshot::channel();
        let stopping = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let session = tokio::spawn(session.run(Vec::new(), stopping));
        Self { client, driver, conn, hub, stop: Some(stop), session }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.unwrap();
        settle().await;
    }

    /// Reads exactly these bytes.
    #[track_caller]
    fn expect<'a>(&'a mut self, bytes: &'a [u8]) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let mut got = vec![0; bytes.len()];
            self.client.read_exact(&mut got).await.unwrap();
            let (got, bytes) = (String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes));
            assert_eq!(got, bytes, "{caller}");
        }
    }

    /// The connection says this, and nothing after it.
    async fn expect_end(mut self, bytes: &[u8]) -> mpsc::Receiver<Message> {
        let mut got = Vec::new();
        self.client.read_to_end(&mut got).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes));
        drop(self.client);
        self.session.await.unwrap();
        self.driver
    }

    async fn requests(&mut self) -> Requests {
        let message = self.driver.recv().await.unwrap();
        let Message::Requests(conn, requests) = message else { panic!("{message:?}") };
        assert!(Arc::ptr_eq(&conn, &self.conn));
        requests
    }

    /// The driver hears that the client has said its last word, and all that was
    /// decided for it has been told.
    async fn settle_leaving(&mut self) {
        let message = self.driver.recv().await.unwrap();
        let Message::Leaving(conn) = message else { panic!("{message:?}") };
        conn.settled().into_iter().for_each(std::task::Waker::wake);
    }

    /// The driver's turn: answers, then the batch is done.
    fn answer(&self, answers: &[Answer<'_>]) -> Vec<LostGrant> {
        let mut open = self.conn.answers(None);
        let lost = answers.iter().filter_map(|&answer| open.push(answer).err()).collect();
        let wakers = [open.done(), self.conn.served()];
        wakers.into_iter().flatten().for_each(std::task::Waker::wake);
        lost
    }
}

/// Lets the session do what it can do without time going on.
async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn granted(token: u64) -> Answer<'static> {
    Answer::Granted { token, owner: token, ends_ms: 10_000, key: b"k" }
}

fn granted_frame(token: u64) -> Vec<u8> {
    answer(ServerFrame::Granted { token, owner: token, key: key("k") })
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_together_are_one_batch_and_so_are_their_answers() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    bench.send(&[acquire(1, 0, "k"), b"\n\n".to_vec(), release(9, "k")].concat()).await;
    let requests = bench.requests().await;
    let seen = requests.iter().collect::<Vec<_>>();
    assert!(matches!(seen[0], Request::Acquire { wait_secs: 0, lease_secs: 10, owner: 1, key: b"k", .. }));
    assert_eq!(seen[1], Request::Release { token: 9, key: b"k" });
    bench.answer(&[granted(1), Answer::NotHeld { token: 9, key: b"k" }]);
    bench.expect(&granted_frame(1)).await;
    bench.expect(&answer(ServerFrame::NotHeld { token: 9, key: key("k") })).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_batch_waits_until_the_first_is_done() {
    let mut bench = Bench::start();
    bench.send(&acquire(1, 0, "k")).await;
    bench.requests().await;
    bench.send(&acquire(2, 0, "k")).await;
    advance(Duration::from_secs(1)).await;
    assert!(bench.driver.try_recv().is_err(), "there was a batch with the driver already");
    bench.answer(&[granted(1)]);
    assert_eq!(bench.requests().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_frame_has_five_seconds_from_its_first_byte_however_it_trickles() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    let start = Instant::now();
    for byte in &acquire(1, 0, "key")[..4] {
        bench.send(&[*byte]).await;
        advance(Duration::from_millis(1_249)).await;
    }
    assert!(!bench.session.is_finished());
    bench.expect_end(b"Eframe_timeout\n").await;
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_frame_starts_anew_with_the_next_frame() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    let frame = release(1, "k");
    let (begin, end) = frame.split_at(3);
    bench.send(begin).await;
    advance(Duration::from_secs(4)).await;
    let start = Instant::now();
    bench.send(&[end, begin].concat()).await;
    bench.requests().await;
    bench.answer(&[Answer::Released { token: 1, key: b"k" }]);
    bench
        .expect_end(
            &[&answer(ServerFrame::Released { token: 1, key: key("k") })[..], b"Eframe_timeout\n"].concat(),
        )
        .await;
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_stays_open_and_keep_alives_are_ignored() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    for _ in 0..100 {
        bench.send(b"\n\n\n").await;
        advance(Duration::from_secs(60)).await;
    }
    let mut nothing = [0];
    let read = timeout(Duration::from_secs(3600), bench.client.read(&mut nothing)).await;
    assert!(read.is_err(), "an idle server says nothing");
    assert!(bench.driver.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn while_a_request_is_pending_the_server_shows_that_it_lives() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    advance(Duration::from_secs(100)).await;
    let start = Instant::now();
    bench.send(&acquire(1, 60, "k")).await;
    bench.requests().await;
    bench.answer(&[]);
    for seconds in [2, 4, 6] {
        bench.expect(b"\n").await;
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    // More requests are no sign of the server's life.
    advance(Duration::from_secs(1)).await;
    bench.send(&acquire(2, 60, "k")).await;
    bench.requests().await;
    bench.answer(&[]);
    bench.expect(b"\n").await;
    assert_eq!(start.elapsed().as_secs(), 8);
    // An answer is.
    advance(Duration::from_secs(1)).await;
    bench.answer(&[granted(1)]);
    bench.expect(&granted_frame(1)).await;
    bench.expect(b"\n").await;
    assert_eq!(start.elapsed().as_secs(), 11);
    bench.answer(&[granted(2)]);
    bench.expect(&granted_frame(2)).await;
    let mut nothing = [0];
    assert!(timeout(Duration::from_secs(60), bench.client.read(&mut nothing)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn answers_to_the_frames_before_a_bad_one_leave_before_its_reason() {
    for (bad, reason) in [
        (&b"x"[..], "bad_op"),
        (&request(ticketing_protocol::ClientFrame::Cancel { owner: 1, key: key("k") }), "bad_op"),
        (b"A\0\0\0\0\0\0\0\0\0\0k\n", "bad_lease"),
        (b"R\0\0\0\0\0\0\0\0two words\n", "bad_key"),
        (&[b'R'; 193], "line_too_long"),
    ] {
        let mut bench = Bench::start();
        bench.expect(b"Lme:1\n").await;
        bench.send(&[&acquire(1, 0, "k"), bad, &acquire(2, 0, "k")].concat()).await;
        assert_eq!(bench.requests().await.len(), 1, "nothing behind the bad frame counts");
        bench.answer(&[granted(1)]);
        let end = [granted_frame(1), format!("E{reason}\n").into()].concat();
        let mut driver = bench.expect_end(&end).await;
        assert!(matches!(driver.recv().await, Some(Message::Closed(ConnId(1)))));
        assert!(driver.recv().await.is_none(), "the grant may have arrived: it stays");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sent_before_it_closed_is_served() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    bench.send(&[acquire(1, 0, "k"), acquire(2, 60, "k")].concat()).await;
    bench.client.shutdown().await.unwrap();
    assert_eq!(bench.requests().await.len(), 2);
    assert!(bench.driver.try_recv().is_err(), "the end comes after what was sent before it");
    bench.answer(&[granted(1)]);
    let start = Instant::now();
    bench.settle_leaving().await;
    let mut driver = bench.expect_end(&granted_frame(1)).await;
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(matches!(driver.recv().await, Some(Message::Closed(ConnId(1)))));
    assert!(driver.recv().await.is_none());
}

/// With a log, the batch is through long before its answers are there.
#[tokio::test(start_paused = true)]
async fn what_was_decided_before_the_end_is_told_once_it_is_committed() {
    let bad_frame: (&[u8], &[u8]) = (b"?", b"Ebad_op\n");
    for (last, reason) in [bad_frame, (b"", b"")] {
        let mut bench = Bench::start();
        bench.expect(b"Lme:1\n").await;
        bench.send(&[&acquire(1, 0, "k"), last].concat()).await;
        if last.is_empty() {
            bench.client.shutdown().await.unwrap();
        }
        bench.requests().await;
        bench.answer(&[]);
        let message = bench.driver.recv().await.unwrap();
        let Message::Leaving(conn) = message else { panic!("{message:?}") };
        advance(Duration::from_secs(1)).await;
        settle().await;
        assert!(bench.driver.try_recv().is_err(), "it waits for the log");
        bench.answer(&[granted(1)]);
        conn.settled().into_iter().for_each(std::task::Waker::wake);
        bench.expect_end(&[&granted_frame(1), reason].concat()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_held_up_does_not_keep_a_connection_that_ends() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    bench.send(&[&acquire(1, 0, "k"), &b"?"[..]].concat()).await;
    bench.requests().await;
    bench.answer(&[]);
    let start = Instant::now();
    bench.expect_end(b"Ebad_op\n").await;
    assert_eq!(start.elapsed(), SETTLING);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_held_up_does_not_keep_a_connection_that_ends() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    bench.send(&[&acquire(1, 0, "k"), &b"?"[..]].concat()).await;
    bench.requests().await;
    let (start, conn) = (Instant::now(), Arc::clone(&bench.conn));
    bench.expect_end(b"Ebad_op\n").await;
    assert_eq!(start.elapsed(), SETTLING);
    let late = conn.answers(None).push(granted(7));
    assert_eq!(
        late,
        Err(LostGrant { token: 7, key: b"k"[..].into() }),
        "a grant that comes too late is given back"
    );
}

#[tokio::test(start_paused = true)]
async fn grants_that_never_left_are_given_back_when_the_client_is_gone() {
    // The frames of two grants and a bit fit in.
    let room = b"Lme:1\n".len() + 2 * granted_frame(1).len() + 1;
    let mut bench = Bench::with(room, Extension::Off, |_| {});
    bench.send(&acquire(1, 0, "k")).await;
    bench.requests().await;
    bench.answer(&[1, 2, 3, 4, 5].map(granted));
    settle().await;
    drop(bench.client);
    let messages = [bench.driver.recv().await, bench.driver.recv().await];
    assert!(matches!(messages[0], Some(Message::Closed(ConnId(1)))));
    let Some(Message::Lost(lost)) = &messages[1] else { panic!("{messages:?}") };
    // One byte of the third had left.
    assert_eq!(lost.iter().map(|grant| grant.token).collect::<Vec<_>>(), [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_not_read_and_then_given_up() {
    let mut bench = Bench::with(40, Extension::On, |limits| limits.unread_output = 100);
    bench.send(&acquire(1, 0, "k")).await;
    bench.requests().await;
    // 27 bytes each: one and a bit leave, the rest is more than the cap.
    bench.answer(&[1, 2, 3, 4, 5, 6].map(granted));
    bench.send(&acquire(2, 0, "k")).await;
    let start = Instant::now();
    advance(Duration::from_millis(4_900)).await;
    assert!(bench.driver.try_recv().is_err(), "it is not read");
    assert_eq!(bench.hub.counters.output_pauses.get(), 1);
    assert!(matches!(bench.driver.recv().await, Some(Message::Closed(_))));
    assert_eq!(start.elapsed().as_secs(), 5);
    let Some(Message::Lost(lost)) = bench.driver.recv().await else { panic!("grants were lost") };
    assert_eq!(lost.iter().map(|grant| grant.token).collect::<Vec<_>>(), [3, 4, 5, 6]);
    // Whoever reads after all finds whole frames and the reason.
    let frames = [1, 2].map(|token| {
        answer(ServerFrame::GrantedUntil { token, owner: token, ends_ms: 10_000, key: key("k") })
    });
    bench.expect_end(&[b"Lme:1\n", &frames.concat()[..], b"Eoverloaded\n"].concat()).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not_given_up() {
    let mut bench = Bench::with(40, Extension::Off, |limits| limits.unread_output = 100);
    bench.send(&acquire(1, 0, "k")).await;
    bench.requests().await;
    bench.answer(&(1..20).map(granted).collect::<Vec<_>>());
    bench.expect(b"Lme:1\n").await;
    for token in 1..20 {
        advance(Duration::from_secs(3)).await;
        bench.expect(&granted_frame(token)).await;
    }
    bench.send(&release(1, "k")).await;
    assert_eq!(bench.requests().await.len(), 1, "below the cap it is read again");
}

#[tokio::test(start_paused = true)]
async fn back_pressure_is_not_a_stalled_frame() {
    for completes in [true, false] {
        let mut bench = Bench::with(40, Extension::Off, |limits| limits.unread_output = 100);
        bench.expect(b"Lme:1\n").await;
        let frame = release(1, "k");
        let (begin, end) = frame.split_at(3);
        bench.send(&[&acquire(1, 0, "k"), begin].concat()).await;
        bench.requests().await;
        bench.answer(&(1..20).map(granted).collect::<Vec<_>>());
        for token in 1..20 {
            if token < 10 {
                advance(Duration::from_secs(3)).await;
            }
            bench.expect(&granted_frame(token)).await;
        }
        settle().await;
        let start = Instant::now();
        if completes {
            advance(Duration::from_millis(4_900)).await;
            bench.send(end).await;
            assert_eq!(bench.requests().await.len(), 1);
        } else {
            bench.expect_end(b"Eframe_timeout\n").await;
            assert_eq!(start.elapsed().as_secs(), 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keep_alives_is_read_in_small_doses() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    let flood = vec![b'\n'; 10 * READ_BYTES];
    bench.send(&[&flood[..], &acquire(1, 0, "k")].concat()).await;
    let start = Instant::now();
    assert_eq!(bench.requests().await.len(), 1);
    assert!(start.elapsed() >= 9 * FLOOD_PAUSE, "{:?}", start.elapsed());
    assert!(start.elapsed() <= Duration::from_millis(50), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn over_the_limit_of_requests_in_flight_it_is_not_read() {
    let mut bench = Bench::with(MORE, Extension::On, |limits| limits.engine.in_flight_per_connection = 2);
    bench.expect(b"Lme:1\n").await;
    let place = request(ticketing_protocol::ClientFrame::Place { owner: 1, key: key("k") });
    bench.send(&[&place[..], &place].concat()).await;
    bench.requests().await;
    // As a cluster would, for want of a commit.
    bench.answer(&[]);
    bench.send(&place).await;
    advance(Duration::from_secs(1)).await;
    assert!(bench.driver.try_recv().is_err());
    assert_eq!(bench.hub.counters.in_flight_pauses.get(), 1);
    bench.answer(&[Answer::Place { owner: 1, place: 0, waiters: 0, key: b"k" }]);
    assert_eq!(bench.requests().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_server_stops_everybody_is_told() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    bench.stop.take().unwrap().send(()).unwrap();
    bench.expect_end(b"Eshutting_down\n").await;
}

#[tokio::test(start_paused = true)]
async fn the_driver_can_end_a_connection() {
    let mut bench = Bench::start();
    bench.send(&[acquire(1, 0, "k"), acquire(2, 0, "k")].concat()).await;
    bench.requests().await;
    bench.answer(&[granted(1), Answer::CloseUnknown]);
    bench.expect_end(&[b"Lme:1\n", &granted_frame(1)[..]].concat()).await;

    let mut bench = Bench::start();
    bench.send(&acquire(1, 0, "k")).await;
    bench.requests().await;
    bench.answer(&[Answer::CloseOverloaded]);
    bench.expect_end(b"Lme:1\nEoverloaded\n").await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_behind_the_last_word_is_swallowed_but_not_for_ever() {
    let mut bench = Bench::with(1 << 16, Extension::Off, |_| {});
    bench.expect(b"Lme:1\n").await;
    // Without a line feed: one frame that is far too long.
    bench.send(&vec![b'A'; 10 << 20]).await;
    bench.expect(b"Eline_too_long\n").await;
    let start = Instant::now();
    bench.session.await.unwrap();
    assert_eq!(start.elapsed(), LINGER, "a client that does not close is closed");
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_when_the_leader_changes_and_when_the_cluster_ends() {
    let mut bench = Bench::start();
    bench.expect(b"Lme:1\n").await;
    let lead = |lead| bench.hub.view.send_modify(|view| view.lead = lead);
    lead(Lead::There("other:1".into()));
    settle().await;
    lead(Lead::There("other:1".into()));
    settle().await;
    lead(Lead::Unknown);
    settle().await;
    lead(Lead::Here);
    bench.expect(b"Lother:1\nL\nLme:1\n").await;
    bench.hub.view.send_modify(|view| view.domain = None);
    bench.expect(b"Enot_active\n").await;
}
