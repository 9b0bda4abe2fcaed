//! Two things that happen to one key at one moment: one of them wins, and everybody is told which.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::bulk::{pipelined, scaled, token_of};

/// What ends on its own: a wait or a lease.
const SECOND: Duration = Duration::from_secs(1);

/// Keys whose races are a tenth of a millisecond apart, so that thousands of races fit
/// into a second. In each of them something ends by itself a second after its acquire,
/// and a release is aimed at that very moment.
struct Race {
    keys: Vec<String>,
    /// When each acquire was handed to the socket.
    sent: Mutex<Vec<Instant>>,
    aim: Aim,
}

/// How long before or after the end a release is sent, in microseconds. How long the
/// way to the server takes, and how late it notices an end, changes with everything
/// that the machine does. So each race that was lost by one side gives the next ones
/// to the other, and neither can win all of them: their difference is the aim, by steps.
struct Aim {
    micros: AtomicI64,
    step: i64,
}

/// A release that is to come.
type Planned = Reverse<(Instant, usize, u64)>;

impl Race {
    fn new(count: u64) -> Self {
        Self {
            keys: (0..count).map(|number| format!("k-{number}")).collect(),
            sent: Mutex::default(),
            // All races in a row for one side move the aim by a second.
            aim: Aim { micros: AtomicI64::new(0), step: 1_000_000 / i64::try_from(count).unwrap() },
        }
    }

    /// Sends the acquires, one after the other.
    fn acquire_all(&self, raw: &Mutex<TcpStream>, mut frame: impl FnMut(usize, &str) -> Vec<u8>) {
        let start = Instant::now();
        let due = |number: usize| start + Duration::from_micros(100) * u32::try_from(number).unwrap();
        let mut next = 0;
        while next < self.keys.len() {
            let now = Instant::now();
            let mut batch = Vec::new();
            while let Some(key) = self.keys.get(next)
                && due(next) <= now
            {
                // Never after the server has it: ends are counted from here.
                self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(now);
                batch.extend(frame(next, key));
                next += 1;
            }
            send(raw, &batch);
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn sent(&self, number: usize) -> Instant {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)[number]
    }

    /// Sends the release of each key whose number and token come in, around the end of its second.
    fn release_all(&self, raw: &Mutex<TcpStream>, keys: &Receiver<(usize, u64)>) {
        let mut random = StdRng::seed_from_u64(1);
        let mut planned: BinaryHeap<Planned> = BinaryHeap::new();
        let mut more = true;
        while more || !planned.is_empty() {
            loop {
                match keys.try_recv() {
                    Ok((number, token)) => {
                        let scatter = Duration::from_micros(random.random_range(0..4000));
                        planned.push(Reverse((self.sent(number) + SECOND + scatter, number, token)));
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        more = false;
                        break;
                    }
                }
            }
            let mut batch = Vec::new();
            while let Some(&Reverse((end, number, token))) = planned.peek()
                && self.aim.at(end) <= Instant::now()
            {
                planned.pop();
                batch.extend(wire::release(&self.keys[number], token));
            }
            send(raw, &batch);
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Neither side won nearly always, so the moment was hit.
    #[track_caller]
    fn assert_contested(&self, won: usize) {
        let all = self.keys.len();
        assert!((all / 10..=all - all / 10).contains(&won), "one side won {won} races of {all}");
    }
}

impl Aim {
    fn was_early(&self) {
        self.micros.fetch_add(self.step, Ordering::Relaxed);
    }

    fn was_late(&self) {
        self.micros.fetch_sub(self.step, Ordering::Relaxed);
    }

    fn at(&self, end: Instant) -> Instant {
        let micros = self.micros.load(Ordering::Relaxed);
        let distance = Duration::from_micros(micros.unsigned_abs());
        if micros < 0 { end.checked_sub(distance).unwrap_or(end) } else { end + distance }
    }
}

fn send(raw: &Mutex<TcpStream>, frames: &[u8]) {
    let mut raw = raw.lock().unwrap_or_else(PoisonError::into_inner);
    raw.write_all(frames).expect("the server takes everything");
}

fn number_of(reply: &Reply) -> usize {
    let key = std::str::from_utf8(reply.key().expect("an answer about a key")).unwrap();
    key.strip_prefix("k-").unwrap().parse().unwrap()
}

#[test]
fn c28_timeout_vs_grant() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open(server.addr());
    let race = &Race::new(scaled(10_000));
    let count = race.keys.len() as u64;
    let mut tokens = Vec::new();
    let stream: Vec<u8> = race.keys.iter().flat_map(|key| wire::acquire(key, 1, 0, 250)).collect();
    pipelined(&mut holder, &stream, count, |reply| tokens.push(token_of(&reply)));

    let [to_holder, to_waiter] = [&holder, &waiter].map(|raw| Mutex::new(raw.tcp().try_clone().unwrap()));
    let (queued, queue) = channel();
    let tokens = &tokens;
    let answers = thread::scope(|scope| {
        scope.spawn(move || {
            race.acquire_all(&to_waiter, |number, key| {
                queued.send((number, tokens[number])).unwrap();
                wire::acquire(key, number as u64, 1, 250)
            });
        });
        // The release comes when the wait is over.
        scope.spawn(move || race.release_all(&to_holder, &queue));
        scope.spawn(|| {
            for _ in &race.keys {
                let reply = holder.read();
                let number = number_of(&reply);
                assert_eq!(reply, Reply::released(tokens[number], &race.keys[number]));
            }
        });
        let mut answers = vec![None; race.keys.len()];
        for _ in &race.keys {
            let answer = waiter.read();
            let number = number_of(&answer);
            if let Reply::Granted { .. } = answer {
                race.aim.was_early();
            } else {
                assert_eq!(answer, Reply::timed_out(number as u64, &race.keys[number]));
                race.aim.was_late();
                let took = race.sent(number).elapsed();
                assert!(took >= SECOND, "{answer:?} after {took:?}");
            }
            assert_eq!(answers[number].replace(answer), None, "a second answer");
        }
        answers.into_iter().flatten().collect::<Vec<Reply>>()
    });
    // Whoever was granted holds; where the wait ran out, nobody does.
    race.assert_contested(answers.iter().filter(|answer| matches!(answer, Reply::Granted { .. })).count());
    let mut stream = Vec::new();
    for (key, answer) in race.keys.iter().zip(&answers) {
        stream.extend(match answer {
            Reply::Granted { token, .. } => wire::release(key, *token),
            _ => wire::acquire(key, 1, 0, 10),
        });
    }
    pipelined(&mut waiter, &stream, count, |reply| {
        let number = number_of(&reply);
        match &answers[number] {
            Reply::Granted { token, .. } => assert_eq!(reply, Reply::released(*token, &race.keys[number])),
            _ => assert!(token_of(&reply) > tokens[number]),
        }
    });
    waiter.expect_silence(Duration::from_millis(300));
}

#[test]
fn c29_release_vs_expiry() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open(server.addr());
    let race = &Race::new(scaled(10_000));
    let [to_holder, to_waiter] = [&holder, &waiter].map(|raw| Mutex::new(raw.tcp().try_clone().unwrap()));
    let (granted, held) = channel();
    let successors = thread::scope(|scope| {
        let to_holder = &to_holder;
        scope.spawn(move || race.acquire_all(to_holder, |_, key| wire::acquire(key, 1, 0, 1)));
        // The release comes when the lease is over.
        scope.spawn(move || race.release_all(to_holder, &held));
        let released = scope.spawn(move || {
            let mut tokens = vec![0; race.keys.len()];
            let mut answers = vec![None; race.keys.len()];
            for _ in 0..2 * race.keys.len() {
                let reply = holder.read();
                let number = number_of(&reply);
                let key = &race.keys[number];
                if let Reply::Granted { token, .. } = reply {
                    tokens[number] = token;
                    send(&to_waiter, &wire::acquire(key, 2, 30, 250));
                    granted.send((number, token)).unwrap();
                    continue;
                }
                let released = reply == Reply::released(tokens[number], key);
                if released {
                    race.aim.was_early();
                } else {
                    assert_eq!(reply, Reply::not_held(tokens[number], key));
                    race.aim.was_late();
                    let took = race.sent(number).elapsed();
                    assert!(took >= SECOND, "a lease of a second ended after {took:?}");
                }
                assert_eq!(answers[number].replace(released), None, "a second answer");
            }
            answers.into_iter().flatten().filter(|released| *released).count()
        });
        let mut successors = vec![0; race.keys.len()];
        for _ in &race.keys {
            let reply = waiter.read();
            let token = token_of(&reply);
            assert_eq!(std::mem::replace(&mut successors[number_of(&reply)], token), 0, "a second grant");
        }
        race.assert_contested(released.join().unwrap());
        successors
    });
    // No expiry of the old holder has hit the new one.
    let stream: Vec<u8> =
        race.keys.iter().zip(&successors).flat_map(|(key, &token)| wire::release(key, token)).collect();
    pipelined(&mut waiter, &stream, race.keys.len() as u64, |reply| {
        let number = number_of(&reply);
        assert_eq!(reply, Reply::released(successors[number], &race.keys[number]));
    });
}

#[test]
fn x30_cancel_vs_grant() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open_extended(server.addr());
    let keys: Vec<String> = (0..scaled(10_000)).map(|number| format!("k-{number}")).collect();
    let count = keys.len() as u64;
    let mut tokens = Vec::new();
    let stream: Vec<u8> = keys.iter().flat_map(|key| wire::acquire(key, 1, 0, 250)).collect();
    pipelined(&mut holder, &stream, count, |reply| tokens.push(token_of(&reply)));
    waiter.send(keys.iter().flat_map(|key| wire::acquire(key, 2, 60, 250)).collect::<Vec<_>>());
    waiter.send(wire::place(&keys[keys.len() - 1], 2));
    waiter.expect(&Reply::place(2, 1, 1, &keys[keys.len() - 1]));

    let releases: Vec<u8> =
        keys.iter().zip(&tokens).flat_map(|(key, &token)| wire::release(key, token)).collect();
    let cancels: Vec<u8> = keys.iter().flat_map(|key| wire::cancel(key, 2)).collect();
    let mut answers = vec![None; keys.len()];
    thread::scope(|scope| {
        scope.spawn(|| {
            pipelined(&mut holder, &releases, count, |reply| {
                assert!(matches!(reply, Reply::Released { .. }));
            });
        });
        pipelined(&mut waiter, &cancels, count, |reply| {
            let number = number_of(&reply);
            assert_eq!(answers[number].replace(reply), None, "a second answer");
        });
    });
    let mut stream = Vec::new();
    for (key, answer) in keys.iter().zip(&answers) {
        stream.extend(match answer {
            Some(Reply::GrantedUntil { token, .. }) => wire::release(key, *token),
            _ => wire::acquire(key, 3, 0, 10),
        });
    }
    pipelined(&mut waiter, &stream, count, |reply| {
        let number = number_of(&reply);
        match &answers[number] {
            Some(Reply::GrantedUntil { token, .. }) => {
                assert_eq!(reply, Reply::released(*token, &keys[number]));
            }
            answer => {
                assert_eq!(answer, &Some(Reply::busy(2, &keys[number])));
                assert!(token_of(&reply) > tokens[number]);
            }
        }
    });
    waiter.expect_silence(Duration::from_millis(300));
}
