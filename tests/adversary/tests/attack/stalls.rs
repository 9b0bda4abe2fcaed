//! Clients that begin and do not go on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::{at_once, timed};

const FRAME_TIMEOUT: Duration = Duration::from_secs(5);
/// How late a stalled frame may be noticed here; a quiet machine needs milliseconds.
const SLACK: Duration = Duration::from_secs(3);

#[track_caller]
fn expect_frame_timeout(raw: &mut Raw, first_byte: Instant) {
    raw.expect_error("frame_timeout");
    let took = first_byte.elapsed();
    assert!(took >= FRAME_TIMEOUT, "cut off {took:?} after its first byte");
    assert!(took < FRAME_TIMEOUT + SLACK, "cut off only {took:?} after its first byte");
}

#[test]
fn a06_frame_progress_clock() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let acquire = |key: &str| wire::acquire(key, 1, 0, 10);
    at_once([
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            raw.send("A");
            expect_frame_timeout(&mut raw, start);
        }),
        // The clock runs from the first byte, not from the last one.
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            for byte in &acquire("trickled-key-that-is-long")[..22] {
                if start.elapsed() > Duration::from_millis(4700) {
                    break;
                }
                raw.send([*byte]);
                sleep(Duration::from_millis(400));
            }
            expect_frame_timeout(&mut raw, start);
        }),
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            raw.send(&acquire("k")[..11]);
            while start.elapsed() < Duration::from_millis(4800) {
                raw.send("k");
                sleep(Duration::from_millis(100));
            }
            expect_frame_timeout(&mut raw, start);
        }),
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            raw.send(&wire::release("k", 1)[..5]);
            sleep(Duration::from_millis(4900));
            raw.send(&wire::release("k", 1)[5..8]);
            expect_frame_timeout(&mut raw, start);
        }),
        // Slow, but in time; and each frame has a clock of its own.
        Box::new(move || {
            let mut raw = Raw::open(addr);
            for key in ["slow-1", "slow-2", "slow-3"] {
                let frame = acquire(key);
                raw.send_in_pieces(frame, 6, Duration::from_millis(1200));
                let _ = raw.expect_granted(key, 1);
            }
        }),
        // The end of one frame and the start of the next in one piece.
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let two = [acquire("joined-1"), acquire("joined-2")].concat();
            raw.send(&two[..10]);
            sleep(Duration::from_secs(3));
            let second = Instant::now();
            raw.send(&two[10..30]);
            let _ = raw.expect_granted("joined-1", 1);
            sleep(Duration::from_secs(3));
            raw.send(&two[30..]);
            assert!(second.elapsed() < FRAME_TIMEOUT, "the machine is too slow for this test");
            let _ = raw.expect_granted("joined-2", 1);
        }),
        // Keep-alives are no frame, at any rate, for any time.
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(7) {
                raw.send("\n");
                sleep(Duration::from_millis(100));
            }
            let _ = raw.take("after-keep-alives", 1, 10);
        }),
        Box::new(move || {
            let mut raw = Raw::open(addr);
            raw.expect_silence(Duration::from_secs(13));
            assert_eq!(raw.keep_alives(), 0, "nothing is pending, so there is nothing to say");
            let _ = raw.take("after-a-long-pause", 1, 10);
        }),
        // What came before the stalled frame is answered; a waiter ends with its connection.
        Box::new(move || {
            let mut raw = Raw::open(addr);
            let start = Instant::now();
            let frames = [acquire("before"), wire::acquire("before", 2, 60, 10), acquire("stalled")];
            raw.send(&frames.concat()[..40]);
            let token = raw.expect_granted("before", 1);
            expect_frame_timeout(&mut raw, start);
            let mut other = Raw::open(addr);
            other.release("before", token);
            other.expect(&Reply::released(token, "before"));
            let _ = other.take("before", 3, 10);
        }),
    ]);
}

#[test]
fn a06_a_thousand_stalled_frames_disturb_nobody() {
    let server = Server::start(&[]);
    let start = Instant::now();
    let mut stalled: Vec<Raw> = (0..1000).map(|_| Raw::open(server.addr())).collect();
    for raw in &mut stalled {
        raw.send(&wire::acquire("stalled", 1, 0, 10)[..7]);
    }
    let mut witness = Raw::open(server.addr());
    let mut slowest = Duration::ZERO;
    while start.elapsed() < FRAME_TIMEOUT {
        let (_, took) = timed(|| {
            let token = witness.take("witness", 1, 10);
            witness.release("witness", token);
            witness.expect(&Reply::released(token, "witness"));
        });
        slowest = slowest.max(took);
        sleep(Duration::from_millis(5));
    }
    assert!(slowest < Duration::from_secs(1), "a healthy client waited {slowest:?}");
    for raw in &mut stalled {
        raw.expect_error("frame_timeout");
    }
}

/// A server that stopped reading, because its answers are not read, has no business
/// to blame the client for a frame that the client sent in one go.
#[test]
fn a06_back_pressure_is_not_a_stalled_frame() {
    let server = Server::start(&["--max-unread-output", "262144"]);
    let mut raw = Raw::open(server.addr());
    let frame = wire::release("k".repeat(120), 1);
    let count = 200_000;
    let mut writer = raw.tcp().try_clone().unwrap();
    let stream = frame.repeat(count);
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &stream));
    // Reads in steps of which each lets the server read a little, now and then in the
    // middle of a frame, and which are further apart than a frame may take.
    let mut read = 0;
    for _ in 0..3 {
        sleep(Duration::from_millis(4500));
        for _ in 0..20_000 {
            raw.expect(&Reply::not_held(1, "k".repeat(120)));
        }
        read += 20_000;
    }
    for _ in read..count {
        raw.expect(&Reply::not_held(1, "k".repeat(120)));
    }
    sender.join().unwrap().unwrap();
}

#[test]
fn a13_pending_requests_are_kept_alive() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let mut waiter = Raw::open(server.addr());
    waiter.acquire("k", 2, 60, 10);
    waiter.expect_silence(Duration::from_secs(7));
    let (idle, pending) = (holder.keep_alives(), waiter.keep_alives());
    assert!((2..=4).contains(&pending), "{pending} keep-alives within 7 s, one is due every 2 s");
    holder.expect_silence(Duration::from_millis(10));
    assert_eq!(idle + holder.keep_alives(), 0, "nothing was pending");
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let _ = waiter.expect_granted("k", 2);
    let answered = waiter.keep_alives();
    waiter.expect_silence(Duration::from_secs(5));
    assert_eq!(waiter.keep_alives(), answered, "nothing is pending any more");
}
