//! Leases: never early, hardly late, however many end at once.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::bulk::{pipelined, scaled, token_of};
use crate::timed;

#[test]
fn d35_no_lease_ends_early() {
    let server = Server::start(&[]);
    let addr = server.addr();
    thread::scope(|scope| {
        for (part, lease) in [1, 1, 2, 3, 5].into_iter().enumerate() {
            scope.spawn(move || {
                let mut holder = Raw::open(addr);
                let mut waiter = Raw::open(addr);
                let keys: Vec<String> = (0..500).map(|number| format!("{part}-{number}")).collect();
                // The moment before each acquire is sent is the earliest from which its lease can count.
                let mut sent = Vec::new();
                for key in &keys {
                    sent.push(Instant::now());
                    let _ = holder.take(key, 1, lease);
                    waiter.acquire(key, sent.len() as u64 - 1, 30, 250);
                }
                for _ in &keys {
                    let Reply::Granted { owner, .. } = waiter.read() else { panic!("the lock is handed on") };
                    let held = sent[owner as usize].elapsed();
                    assert!(
                        held >= Duration::from_secs(lease.into()),
                        "a lease of {lease} s ended after {held:?}"
                    );
                }
            });
        }
    });
}

#[test]
fn d36_expiry_is_punctual() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let mut late: Vec<Duration> = thread::scope(|scope| {
        let pairs: Vec<_> = (0..20)
            .map(|number| {
                scope.spawn(move || {
                    let key = format!("k-{number}");
                    let mut holder = Raw::open(addr);
                    let mut waiter = Raw::open(addr);
                    thread::sleep(Duration::from_millis(number * 37));
                    let _ = holder.take(&key, 1, 1);
                    let ((), took) = timed(|| {
                        waiter.acquire(&key, 2, 30, 10);
                        let _ = waiter.expect_granted(&key, 2);
                    });
                    took.saturating_sub(Duration::from_secs(1))
                })
            })
            .collect();
        pairs.into_iter().map(|pair| pair.join().unwrap()).collect()
    });
    late.sort_unstable();
    // One of them may be hit by whatever else the machine does.
    assert!(late[10] < Duration::from_millis(250), "{late:?}");
    assert!(late[19] < Duration::from_secs(3), "{late:?}");
}

#[test]
fn d36_waits_end_punctually() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let _ = holder.take("k", 1, 250);
    let mut raw = Raw::open(server.addr());
    let mut late = Vec::new();
    for wait in [1, 2, 1, 1] {
        let ((), took) = timed(|| {
            raw.acquire("k", 2, wait, 10);
            raw.expect(&Reply::timed_out(2, "k"));
        });
        late.push(took.checked_sub(Duration::from_secs(wait.into())).expect("never early"));
    }
    late.sort_unstable();
    assert!(late[1] < Duration::from_millis(250) && late[3] < Duration::from_secs(3), "{late:?}");
}

/// Makes the wall clock of a process jump by a day, to and fro, with every look at it.
const JUMPING_CLOCK: &str = r#"
    #define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>

    static time_t jump(void) {
        static int looks;
        return __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED) % 2 ? 86400 : -86400;
    }

    int clock_gettime(clockid_t clock, struct timespec *now) {
        int outcome = syscall(SYS_clock_gettime, clock, now);
        if (outcome == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
        return outcome;
    }

    int gettimeofday(struct timeval *restrict now, void *restrict zone) {
        struct timespec time;
        (void)zone;
        clock_gettime(CLOCK_REALTIME, &time);
        now->tv_sec = time.tv_sec, now->tv_usec = time.tv_nsec / 1000;
        return 0;
    }

    time_t time(time_t *now) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        return now ? *now = time.tv_sec : time.tv_sec;
    }
"#;

#[test]
fn d37_steps_of_the_wall_clock_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    fs::write(&source, JUMPING_CLOCK).unwrap();
    // The workspace needs a C compiler anyway.
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.expect("a C compiler").success());
    let server = Server::builder().env("LD_PRELOAD", &library).start();
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open(server.addr());
    // The first token comes from the wall clock, which shows that the clock does jump.
    let token = holder.take("k", 1, 250);
    let clock = Duration::from_millis(token >> 20);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(
        clock.abs_diff(now) > Duration::from_secs(80_000),
        "the clock of the server is {clock:?}, ours {now:?}"
    );
    thread::scope(|scope| {
        for lease in 1..4 {
            let addr = server.addr();
            scope.spawn(move || {
                let mut raw = Raw::open(addr);
                let key = format!("lease-{lease}");
                let start = Instant::now();
                let _ = raw.take(&key, 1, lease);
                raw.acquire(&key, 2, 60, 60);
                let _ = raw.expect_granted(&key, 2);
                let (took, lease) = (start.elapsed(), Duration::from_secs(lease.into()));
                assert!(
                    took >= lease && took < lease + Duration::from_secs(2),
                    "a lease of {lease:?} took {took:?}"
                );
            });
        }
        for wait in 1..4 {
            let ((), took) = timed(|| {
                waiter.acquire("k", 2, wait, 10);
                waiter.expect(&Reply::timed_out(2, "k"));
            });
            let wait = Duration::from_secs(wait.into());
            assert!(took >= wait && took < wait + Duration::from_secs(2), "a wait of {wait:?} took {took:?}");
        }
    });
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
}

/// The lease counts from the grant, not from the request.
#[test]
fn d38_a_wait_longer_than_the_lease() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let mut waiter = Raw::open_extended(server.addr());
    let asked = Instant::now();
    waiter.acquire("k", 2, 60, 2);
    thread::sleep(Duration::from_secs(3));
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    let (token, ends_ms) = waiter.expect_granted_until("k", 2);
    let elapsed = asked.elapsed();
    // It ends two seconds after its grant, which lies between three seconds and now.
    let ends = Duration::from_millis(ends_ms.into());
    assert!(
        ends >= Duration::from_millis(4900) && ends <= elapsed + Duration::from_secs(2),
        "{ends:?} of {elapsed:?}"
    );
    thread::sleep(Duration::from_millis(1000));
    waiter.release("k", token);
    waiter.expect(&Reply::released(token, "k"));
}

#[test]
fn d44_expiry_storm() {
    let server = Server::start(&[]);
    let addr = server.addr();
    let (count, lease) = (scaled(100_000), 4);
    let share = count / 4;
    thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                let mut raw = Raw::open(addr);
                let keys: Vec<String> = (0..share).map(|number| format!("{part}-{number}")).collect();
                let stream: Vec<u8> = keys.iter().flat_map(|key| wire::acquire(key, 1, 0, lease)).collect();
                pipelined(&mut raw, &stream, share, |reply| assert_ne!(token_of(&reply), 0));
            });
        }
    });
    let granted = Instant::now();
    let mut witness = Raw::open(addr);
    let mut slowest = Duration::ZERO;
    while granted.elapsed() < Duration::from_secs(u64::from(lease) + 5) {
        let ((), took) = timed(|| {
            let token = witness.take("witness", 1, 10);
            witness.release("witness", token);
            witness.expect(&Reply::released(token, "witness"));
        });
        slowest = slowest.max(took);
        thread::sleep(Duration::from_millis(2));
    }
    assert!(slowest < Duration::from_secs(1), "a healthy client waited {slowest:?}");
    // Five seconds later every one of them is over.
    thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                let mut raw = Raw::open(addr);
                let stream: Vec<u8> = (0..share)
                    .flat_map(|number| wire::acquire(format!("{part}-{number}"), 2, 0, 1))
                    .collect();
                pipelined(&mut raw, &stream, share, |reply| assert_ne!(token_of(&reply), 0));
            });
        }
    });
}
