//! Two things that happen to one key at one moment: one of them wins, and everybody is told which.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::bulk::{pipelined, scaled, token_of};

/// Keys whose races are a tenth of a millisecond apart, so that thousands of races fit
/// into a second.
struct Race {
    keys: Vec<String>,
    start: Instant,
}

impl Race {
    fn new(count: u64) -> Self {
        Self { keys: (0..count).map(|number| format!("k-{number}")).collect(), start: Instant::now() }
    }

    /// The moment of the race of a key, `after` the start.
    fn moment(&self, number: usize, after: Duration) -> Instant {
        self.start + after + Duration::from_micros(100) * u32::try_from(number).unwrap()
    }

    /// Sends one frame a key, each at its moment; returns when each was sent. Meanwhile
    /// the answers are read elsewhere.
    fn send_all(
        &self,
        raw: &TcpStream,
        after: impl Fn(usize) -> Duration,
        frame: impl Fn(usize, &str) -> Vec<u8>,
    ) -> Vec<Instant> {
        let (mut sent, mut raw) = (Vec::new(), raw);
        while sent.len() < self.keys.len() {
            let now = Instant::now();
            let mut batch = Vec::new();
            while let Some(key) = self.keys.get(sent.len())
                && self.moment(sent.len(), after(sent.len())) <= now
            {
                batch.extend(frame(sent.len(), key));
                sent.push(now);
            }
            raw.write_all(&batch).expect("the server takes everything");
            thread::sleep(Duration::from_micros(200));
        }
        sent
    }

    /// Reads one answer a key, and when it came.
    fn read_all(&self, raw: &mut Raw) -> Vec<(Reply, Instant)> {
        let mut answers = vec![None; self.keys.len()];
        for _ in &self.keys {
            let reply = raw.read();
            let number = number_of(&reply);
            assert_eq!(answers[number], None, "{reply:?} is a second answer");
            answers[number] = Some((reply, Instant::now()));
        }
        answers.into_iter().flatten().collect()
    }
}

fn number_of(reply: &Reply) -> usize {
    let key = std::str::from_utf8(reply.key().expect("an answer about a key")).unwrap();
    key.strip_prefix("k-").unwrap().parse().unwrap()
}

/// Some milliseconds around a second, and rather before it: whoever sends at that moment may be held up.
fn about_a_second(number: usize) -> Duration {
    let mut random = StdRng::seed_from_u64(number as u64);
    Duration::from_millis(950) + Duration::from_micros(random.random_range(0..60_000))
}

#[test]
fn c28_timeout_vs_grant() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open(server.addr());
    let mut race = Race::new(scaled(10_000));
    let count = race.keys.len() as u64;
    let mut tokens = Vec::new();
    let stream: Vec<u8> = race.keys.iter().flat_map(|key| wire::acquire(key, 1, 0, 250)).collect();
    pipelined(&mut holder, &stream, count, |reply| tokens.push(token_of(&reply)));

    race.start = Instant::now();
    let [to_holder, to_waiter] = [&holder, &waiter].map(|raw| raw.tcp().try_clone().unwrap());
    let (race, tokens) = (&race, &tokens);
    let (sent, answers) = thread::scope(|scope| {
        // The release comes when the wait is over.
        scope.spawn(move || {
            race.send_all(&to_holder, about_a_second, |number, key| wire::release(key, tokens[number]))
        });
        scope.spawn(|| {
            for (key, &token) in race.keys.iter().zip(tokens) {
                holder.expect(&Reply::released(token, key));
            }
        });
        let acquire = |number: usize, key: &str| wire::acquire(key, number as u64, 1, 250);
        let sent = scope.spawn(move || race.send_all(&to_waiter, |_| Duration::ZERO, acquire));
        let answers = race.read_all(&mut waiter);
        (sent.join().unwrap(), answers)
    });
    for (sent, (answer, received)) in sent.iter().zip(&answers) {
        let took = *received - *sent;
        assert!(
            matches!(answer, Reply::Granted { .. }) || took >= Duration::from_secs(1),
            "{answer:?} after {took:?}"
        );
    }
    // Whoever was granted holds; where the wait ran out, nobody does.
    let granted = answers.iter().filter(|(answer, _)| matches!(answer, Reply::Granted { .. })).count();
    assert!(
        (1..race.keys.len()).contains(&granted),
        "only one side ever won: {granted} of {}",
        race.keys.len()
    );
    let mut stream = Vec::new();
    for (key, (answer, _)) in race.keys.iter().zip(&answers) {
        stream.extend(match answer {
            Reply::Granted { token, .. } => wire::release(key, *token),
            _ => wire::acquire(key, 1, 0, 10),
        });
    }
    pipelined(&mut waiter, &stream, count, |reply| {
        let number = number_of(&reply);
        match &answers[number].0 {
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
    let [to_holder, to_waiter] = [&holder, &waiter].map(|raw| raw.tcp().try_clone().unwrap());
    let (granted, tokens) = mpsc::channel();
    let successors = thread::scope(|scope| {
        scope.spawn(move || {
            let sent = race.send_all(&to_holder, |_| Duration::ZERO, |_, key| wire::acquire(key, 1, 0, 1));
            let tokens: Vec<u64> = tokens.recv().unwrap();
            race.send_all(&to_holder, about_a_second, |number, key| wire::release(key, tokens[number]));
            sent
        });
        let a_bit_later = Duration::from_millis(100);
        scope.spawn(move || {
            race.send_all(&to_waiter, |_| a_bit_later, |_, key| wire::acquire(key, 2, 30, 250))
        });
        let released = scope.spawn(move || {
            let grants = race.read_all(&mut holder);
            granted.send(grants.iter().map(|(reply, _)| token_of(reply)).collect()).unwrap();
            let answers = race.read_all(&mut holder);
            let released = |(grant, answer): (&(Reply, Instant), &(Reply, Instant))| match answer.0 {
                Reply::Released { token, .. } | Reply::NotHeld { token, .. }
                    if token != token_of(&grant.0) =>
                {
                    panic!("{answer:?} for {grant:?}")
                }
                Reply::Released { .. } => true,
                _ => false,
            };
            grants.iter().zip(&answers).filter(|pair| released(*pair)).count()
        });
        let successors = race.read_all(&mut waiter);
        let released = released.join().unwrap();
        assert!(
            (1..race.keys.len()).contains(&released),
            "only one side ever won: {released} of {}",
            race.keys.len()
        );
        successors
    });
    // No expiry of the old holder has hit the new one.
    let stream: Vec<u8> = race
        .keys
        .iter()
        .zip(&successors)
        .flat_map(|(key, (grant, _))| wire::release(key, token_of(grant)))
        .collect();
    pipelined(&mut waiter, &stream, race.keys.len() as u64, |reply| {
        let number = number_of(&reply);
        assert_eq!(reply, Reply::released(token_of(&successors[number].0), &race.keys[number]));
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
