//! Before the handshake nothing, and no handshake without the token.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ticketing_protocol::handshake::digest;
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_until, wire};

use crate::at_once;

const TOKEN: &str = "a token of twenty-nine bytes.";
const REFUSAL_DELAY: Duration = Duration::from_millis(500);

/// Sends a line in answer to the greeting; the server must refuse it, and not too soon.
#[track_caller]
fn expect_refused(server: &Server, line: impl FnOnce(&str) -> Vec<u8>) {
    let mut raw = Raw::connect(server.addr());
    let nonce = raw.read_greeting();
    let start = Instant::now();
    raw.send(line(&nonce));
    raw.expect_error("auth_failed");
    let took = start.elapsed();
    assert!(took >= REFUSAL_DELAY, "refused after {took:?}");
    assert!(took < Duration::from_secs(4), "refused only after {took:?}");
}

#[test]
fn b13_wrong_answers_are_refused() {
    let server = Server::builder().token(TOKEN).start();
    let right = |nonce: &str| digest(TOKEN.as_bytes(), nonce);
    let near_miss = move |nonce: &str| {
        let mut digest = right(nonce).into_bytes();
        digest[42] ^= 1;
        digest
    };
    let line = |text: Vec<u8>| [text, b"\n".to_vec()].concat();
    let server = &server;
    at_once([
        Box::new(move || expect_refused(server, |nonce| line(digest(b"", nonce).into_bytes()))),
        Box::new(move || expect_refused(server, |nonce| line(digest(b"another token", nonce).into_bytes()))),
        Box::new(move || expect_refused(server, |nonce| line(near_miss(nonce)))),
        Box::new(move || expect_refused(server, |nonce| line(right(nonce).to_lowercase().into_bytes()))),
        Box::new(move || {
            expect_refused(server, |nonce| line([right(nonce), "=".into()].concat().into_bytes()));
        }),
        Box::new(move || {
            expect_refused(server, |nonce| line([right(nonce), "\r".into()].concat().into_bytes()));
        }),
        Box::new(move || expect_refused(server, |nonce| line(right(nonce)[..42].into()))),
        Box::new(move || expect_refused(server, |_| b"\n".to_vec())),
        Box::new(move || expect_refused(server, |_| line(vec![0xff; 43]))),
        Box::new(move || expect_refused(server, |_| line(TOKEN.as_bytes().to_vec()))),
        // The secret in the clear, or the answer to another connection's challenge.
        Box::new(move || {
            let other = Raw::connect(server.addr()).read_greeting();
            expect_refused(server, |_| line(right(&other).into_bytes()));
        }),
        // 128 bytes are allowed, and no more; what comes behind is drained, so that the answer is readable.
        Box::new(move || {
            expect_refused(server, |nonce| line(format!("{};{}", right(nonce), "x".repeat(85)).into()));
        }),
        Box::new(move || expect_refused(server, |_| vec![b'x'; 129])),
        Box::new(move || expect_refused(server, |_| vec![b'x'; 4096])),
        Box::new(move || expect_refused(server, |_| vec![b'x'; 4 * 1024 * 1024])),
        Box::new(move || expect_refused(server, |nonce| line(format!("{}ext=1", right(nonce)).into()))),
    ]);
    let _ = Raw::open_with(server.addr(), TOKEN.as_bytes(), false);
}

#[test]
fn b13_right_answers_with_fields_are_taken() {
    let long_token = "τ".repeat(2048);
    let server = Server::builder().token(&long_token).start();
    for (number, (fields, extension)) in (0..).zip([
        (String::new(), false),
        (";".into(), false),
        (";ext=1".into(), true),
        (";ext=2".into(), false),
        (";ext=10".into(), false),
        (";later=field;ext=1;flag".into(), true),
        (format!(";ext=1;{}", "x".repeat(77)), true),
    ]) {
        let mut raw = Raw::connect(server.addr());
        let nonce = raw.read_greeting();
        raw.send(format!("{}{fields}\n", digest(long_token.as_bytes(), &nonce)));
        assert!(matches!(raw.read(), Reply::Leader(_)), "{fields:?}");
        let key = format!("k-{number}");
        raw.acquire(&key, number, 0, 10);
        if extension {
            let _ = raw.expect_granted_until(&key, number);
        } else {
            let _ = raw.expect_granted(&key, number);
        }
    }
}

#[test]
fn b13_a_late_answer_is_refused() {
    let server = Server::builder().token(TOKEN).start();
    let addr = server.addr();
    let five_seconds = Duration::from_secs(5);
    let refused = move |start: Instant, mut raw: Raw| {
        raw.expect_error("auth_failed");
        let took = start.elapsed();
        assert!(took >= five_seconds, "refused after {took:?}");
        assert!(took < Duration::from_secs(9), "refused only after {took:?}");
    };
    at_once([
        Box::new(move || {
            let start = Instant::now();
            let mut raw = Raw::connect(addr);
            raw.read_greeting();
            refused(start, raw);
        }),
        // From the accept, not from the last byte.
        Box::new(move || {
            let start = Instant::now();
            let mut raw = Raw::connect(addr);
            raw.read_greeting();
            while start.elapsed() < Duration::from_millis(4700) {
                raw.send("x");
                sleep(Duration::from_millis(300));
            }
            refused(start, raw);
        }),
        // Slow, but in time.
        Box::new(move || {
            let mut raw = Raw::connect(addr);
            let nonce = raw.read_greeting();
            raw.send_in_pieces(
                format!("{}\n", digest(TOKEN.as_bytes(), &nonce)),
                1,
                Duration::from_millis(50),
            );
            assert!(matches!(raw.read(), Reply::Leader(_)));
        }),
    ]);
}

#[test]
fn b14_nonces_are_fresh() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let mut nonces = HashSet::new();
    let mut ones = 0_u64;
    let count = 3000;
    for number in 0..count {
        let mut raw = Raw::connect(servers[number % 2].addr());
        let nonce = raw.read_greeting();
        assert_eq!(nonce.len(), 22);
        for (index, character) in nonce.bytes().enumerate() {
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let value = alphabet.iter().position(|&letter| letter == character).expect("base64url");
            // The last character carries the two bits that are left of 128.
            let bits = if index == 21 { value >> 4 } else { value };
            ones += u64::from(bits.count_ones());
        }
        assert!(nonces.insert(nonce), "a nonce came twice");
        // A server holds only so many connections that have not authenticated.
        raw.reset();
    }
    // Of 384,000 fair bits, six standard deviations are 1,859.
    let bits = 128 * count as u64;
    assert!(ones.abs_diff(bits / 2) < 1859, "{ones} ones of {bits}");
}

#[test]
fn b16_nothing_is_executed_before_the_handshake() {
    let server = Server::builder().token(TOKEN).start();
    let acquire = wire::acquire("k", 1, 0, 250);
    // An acquire in place of the answer, before it, and behind a wrong one.
    for before in [&b""[..], b"\n", b"x\n"] {
        let mut raw = Raw::connect(server.addr());
        raw.read_greeting();
        raw.send([before, &*acquire, &*acquire].concat());
        raw.expect_error("auth_failed");
    }
    let mut raw = Raw::connect(server.addr());
    let nonce = raw.read_greeting();
    raw.send([format!("{}\n", digest(b"wrong", &nonce)).as_bytes(), &*acquire].concat());
    raw.expect_error("auth_failed");
    let mut witness = Raw::open_with(server.addr(), TOKEN.as_bytes(), false);
    let token = witness.take("k", 2, 10);
    witness.release("k", token);
    witness.expect(&Reply::released(token, "k"));
    // Right behind a right answer, in one piece or cut anywhere, it is served.
    for cut in [1, 20, 42, 43, 44, 45, 60] {
        let mut raw = Raw::connect(server.addr());
        let nonce = raw.read_greeting();
        let key = format!("cut-{cut}");
        let both =
            [format!("{}\n", digest(TOKEN.as_bytes(), &nonce)).into_bytes(), wire::acquire(&key, 3, 0, 10)];
        let bytes = both.concat();
        raw.send(&bytes[..cut]);
        sleep(Duration::from_millis(5));
        raw.send(&bytes[cut..]);
        assert!(matches!(raw.read(), Reply::Leader(_)));
        let _ = raw.expect_granted(&key, 3);
    }
}

#[test]
fn b17_silent_strangers_are_bounded_and_dropped() {
    let server = Server::start(&[]);
    let mut witness = Raw::open(server.addr());
    let start = Instant::now();
    let mut strangers: Vec<Raw> = (0..3000).map(|_| Raw::connect(server.addr())).collect();
    let (mut greeted, mut refused) = (0, 0);
    for raw in &mut strangers {
        // A greeting starts like no frame of the server.
        let line = raw.read_line();
        match line.as_str() {
            "Etoo_many_connections" => refused += 1,
            _ => greeted += 1,
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "the machine is too slow for this test");
    assert_eq!((greeted, refused), (1024, 1976));
    let token = witness.take("k", 1, 10);
    witness.release("k", token);
    witness.expect(&Reply::released(token, "k"));
    for raw in &mut strangers {
        while raw.read_within(PATIENCE).is_some() {}
        raw.expect_closed();
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(12), "dropped only after {took:?}");
    drop(strangers);
    wait_until("room for a stranger", PATIENCE, || {
        Raw::connect(server.addr()).read_line().starts_with("TICKETING")
    });
}

#[test]
fn b15_the_greeting_says_what_it_must() {
    let server = Server::start(&[]);
    let mut raw = Raw::connect(server.addr());
    let nonce = raw.read_greeting();
    let greeting = raw.greeting().to_owned();
    let fields: Vec<&str> = greeting.strip_suffix(&format!(" {nonce}")).unwrap().split(';').collect();
    assert_eq!(fields[0], "TICKETING/1");
    let domain = format!("domain={}", "0".repeat(32));
    let own = format!("self={}", server.addr());
    for field in [&*domain, &own, "ext=1"] {
        assert!(fields.contains(&field), "{field} is missing in {greeting:?}");
    }
    let mut raw = Raw::connect(server.addr());
    assert_eq!(raw.handshake(b"", false), server.addr().to_string());
    let server = Server::start(&["--advertise", "locks.example:5225"]);
    let mut raw = Raw::connect(server.addr());
    assert_eq!(raw.handshake(b"", true), "locks.example:5225");
    assert!(raw.greeting().contains(";self=locks.example:5225"), "{:?}", raw.greeting());
}
