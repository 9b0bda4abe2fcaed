//! Bytes cut, merged and made to look like something else.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use ticketing_test_support::{Raw, Reply, Server, wire};

use crate::in_every_mode;

/// Long enough for a piece to be read on its own, nearly always.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
fn a01_every_byte_fragmentation() {
    in_every_mode(|server| {
        let mut raw = Raw::open(server.addr());
        let length = wire::acquire("key-000", 1, 0, 10).len();
        for cut in 1..length {
            let key = format!("key-{cut:03}");
            let acquire = wire::acquire(&key, 1, 0, 10);
            raw.send(&acquire[..cut]);
            std::thread::sleep(PAUSE);
            raw.send(&acquire[cut..]);
            let token = raw.expect_granted(&key, 1);
            let release = wire::release(&key, token);
            let cut = cut.min(release.len() - 1);
            raw.send(&release[..cut]);
            std::thread::sleep(PAUSE);
            raw.send(&release[cut..]);
            raw.expect(&Reply::released(token, &key));
        }
        // A byte at a time, with line feeds as keep-alives in between the frames.
        let ten_ms = Duration::from_millis(10);
        raw.send_in_pieces([b"\n\n", &*wire::acquire("slow", 2, 0, 10), b"\n"].concat(), 1, ten_ms);
        let token = raw.expect_granted("slow", 2);
        raw.send_in_pieces(wire::release("slow", token), 1, ten_ms);
        raw.expect(&Reply::released(token, "slow"));
    });
}

#[test]
fn a02_line_feeds_and_spaces_inside_headers() {
    in_every_mode(|server| {
        let mut raw = Raw::open(server.addr());
        for byte in [0x0a, 0x0d, 0x20] {
            for position in 0..8 {
                let mut bytes = [0; 8];
                bytes[position] = byte;
                let number = u64::from_be_bytes(bytes);
                let key = format!("{byte}-{position}");
                // Wait and lease are that byte too; the owner comes back bit by bit.
                raw.acquire(&key, number, byte, byte);
                let token = raw.expect_granted(&key, number);
                raw.release(&key, number);
                raw.expect(&Reply::not_held(number, &key));
                raw.release(&key, token);
                raw.expect(&Reply::released(token, &key));
            }
            let number = u64::from_be_bytes([byte; 8]);
            raw.acquire("all", number, byte, byte);
            let token = raw.expect_granted("all", number);
            raw.release("all", number);
            raw.expect(&Reply::not_held(number, "all"));
            raw.release("all", token);
            raw.expect(&Reply::released(token, "all"));
        }
        for owner in [0, 1, u64::MAX, 1 << 53, (1 << 53) + 1, i64::MAX as u64] {
            raw.acquire("owner", owner, 0, 10);
            let token = raw.expect_granted("owner", owner);
            raw.release("owner", token);
            raw.expect(&Reply::released(token, "owner"));
        }
    });
}

/// Five hundred requests, and what is answered for each key, with every token as 0.
fn mixed_stream(run: usize) -> (Vec<u8>, Vec<Vec<Reply>>) {
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    for number in 0..100_u64 {
        let key = format!("{run:03}-{number:03}");
        stream.extend(wire::acquire(&key, number, 0, 250));
        stream.extend(wire::acquire(&key, number + 1000, 0, 10));
        stream.push(b'\n');
        stream.extend(wire::acquire(&key, number + 2000, 1, 10));
        stream.extend(wire::release(&key, u64::MAX));
        stream.extend(wire::acquire(&key, number + 3000, 0, 250));
        expected.push(vec![
            Reply::granted(0, number, &key),
            Reply::timed_out(number + 1000, &key),
            Reply::not_held(u64::MAX, &key),
            Reply::timed_out(number + 3000, &key),
            Reply::timed_out(number + 2000, &key),
        ]);
    }
    (stream, expected)
}

fn replies_by_key(raw: &mut Raw, count: usize) -> Vec<Vec<Reply>> {
    let mut by_key: Vec<Vec<Reply>> = Vec::new();
    for _ in 0..count {
        let mut reply = raw.read();
        if let Reply::Granted { token, .. } = &mut reply {
            assert_ne!(*token, 0);
            *token = 0;
        }
        match by_key.iter_mut().find(|replies| replies[0].key() == reply.key()) {
            Some(replies) => replies.push(reply),
            None => by_key.push(vec![reply]),
        }
    }
    by_key.sort_by(|a, b| a[0].key().cmp(&b[0].key()));
    by_key
}

#[test]
fn a03_coalescing_changes_nothing() {
    in_every_mode(|server| {
        let addr = server.addr();
        std::thread::scope(|scope| {
            for run in 0..12 {
                scope.spawn(move || {
                    let mut raw = Raw::open(addr);
                    let (stream, expected) = mixed_stream(run);
                    let mut random = StdRng::seed_from_u64(run as u64);
                    let mut rest = stream.as_slice();
                    while !rest.is_empty() {
                        // The first run sends all in one piece.
                        let size =
                            if run == 0 { rest.len() } else { random.random_range(1..=rest.len().min(400)) };
                        raw.send(&rest[..size]);
                        rest = &rest[size..];
                        std::thread::sleep(Duration::from_micros(random.random_range(0..800)));
                    }
                    assert_eq!(replies_by_key(&mut raw, 500), expected, "run {run}");
                });
            }
        });
    });
}

#[test]
fn a04_exact_limits() {
    in_every_mode(|server| {
        let mut witness = Raw::open(server.addr());
        let key = |bytes: usize| "k".repeat(bytes);
        for bytes in [1, 127, 128] {
            let mut raw = Raw::open(server.addr());
            raw.acquire(key(bytes), 1, 0, 10);
            let token = raw.expect_granted(key(bytes), 1);
            raw.release(key(bytes), token);
            raw.expect(&Reply::released(token, key(bytes)));
        }
        // A frame counts its op and not its LF: 192 bytes are 181 of key behind an
        // acquire's header, and 183 behind a release's.
        for (frame, reason) in [
            (wire::acquire(key(129), 1, 0, 10), "bad_key"),
            (wire::acquire(key(180), 1, 0, 10), "bad_key"),
            (wire::acquire(key(181), 1, 0, 10), "bad_key"),
            (wire::acquire(key(182), 1, 0, 10), "line_too_long"),
            (wire::release(key(129), 1), "bad_key"),
            (wire::release(key(182), 1), "bad_key"),
            (wire::release(key(183), 1), "bad_key"),
            (wire::release(key(184), 1), "line_too_long"),
        ] {
            let mut raw = Raw::open(server.addr());
            raw.send(&frame);
            raw.expect_error(reason);
        }
        // The 193rd byte decides; no LF is needed.
        let mut raw = Raw::open(server.addr());
        raw.send(&wire::acquire(key(181), 1, 0, 10)[..192]);
        raw.expect_silence(Duration::from_millis(300));
        raw.send("k");
        raw.expect_error("line_too_long");
        let token = witness.take("still-served", 1, 10);
        witness.release("still-served", token);
        witness.expect(&Reply::released(token, "still-served"));
    });
}

#[test]
fn a05_overflow_reply_is_readable() {
    in_every_mode(|server| {
        let ten_megabytes = 10 * 1024 * 1024;
        for (first, reason) in [(b'A', "line_too_long"), (b'R', "line_too_long"), (0, "bad_op")] {
            for pause in [Duration::ZERO, Duration::from_millis(300)] {
                let mut raw = Raw::open(server.addr());
                let mut bytes = vec![b'k'; ten_megabytes];
                bytes[0] = first;
                raw.send(&bytes);
                std::thread::sleep(pause);
                raw.expect(&Reply::error(reason));
                raw.expect_closed();
            }
        }
    });
}

#[test]
fn a07_every_unknown_op_is_refused_at_once() {
    in_every_mode(|server| {
        for op in (0..=u8::MAX).filter(|op| !b"AR\n".contains(op)) {
            let mut raw = Raw::open(server.addr());
            raw.send([op]);
            raw.expect_error("bad_op");
        }
        // The extension's own ops are known only where both ends agreed on it.
        for op in (0..=u8::MAX).filter(|op| !b"ARCPV\n".contains(op)) {
            let mut raw = Raw::open_extended(server.addr());
            raw.send([op]);
            raw.expect_error("bad_op");
        }
    });
}

#[test]
fn a10_what_came_before_a_bad_frame_is_answered_first() {
    in_every_mode(|server| {
        for (bad, reason) in [
            (&b"X"[..], "bad_op"),
            (&wire::acquire("a b", 1, 0, 10), "bad_key"),
            (&wire::acquire("k", 1, 0, 0), "bad_lease"),
            (&[b'A'; 193], "line_too_long"),
        ] {
            let mut raw = Raw::open(server.addr());
            let mut bytes = Vec::new();
            for number in 0..200 {
                bytes.extend(wire::acquire(format!("{reason}-{number}"), number, 0, 10));
                bytes.extend(wire::release(format!("{reason}-{number}"), 1));
            }
            bytes.extend(wire::acquire(format!("{reason}-0"), 1000, 60, 10));
            bytes.extend_from_slice(bad);
            // What comes behind is never looked at.
            bytes.extend(wire::acquire(format!("{reason}-behind"), 1, 0, 10));
            raw.send(&bytes);
            let replies = raw.read_to_end();
            assert_eq!(replies.len(), 401, "{reason}: {:?}", replies.last());
            assert_eq!(replies.last(), Some(&Reply::error(reason)));
            let grants = replies.iter().filter(|reply| matches!(reply, Reply::Granted { .. })).count();
            assert_eq!(grants, 200, "{reason}");
            let mut other = Raw::open(server.addr());
            let _ = other.take(format!("{reason}-behind"), 2, 10);
        }
    });
}

/// Random streams, legal for a while: the server answers what was legal, names what
/// was not, and lives.
#[test]
fn a10_random_bytes_never_hurt() {
    let mut server = Server::start(&[]);
    let mut random = StdRng::seed_from_u64(10);
    for run in 0..300_u64 {
        let mut raw = Raw::open_with(server.addr(), b"", run % 2 == 0);
        let mut frames: Vec<Vec<u8>> = (0..random.random_range(0..20))
            .map(|number| wire::acquire(format!("{run}-{number}"), number, 0, 1))
            .collect();
        let legal = frames.len();
        let mut noise = vec![0; random.random_range(1..400)];
        random.fill(&mut noise[..]);
        let ops = b"ARCPVGTBNMLE\n";
        noise[0] = ops[random.random_range(0..ops.len())];
        frames.shuffle(&mut random);
        frames.push(noise);
        raw.send(frames.concat());
        raw.half_close();
        let replies = raw.read_to_end();
        let is_grant = |reply: &&Reply| matches!(reply, Reply::Granted { .. } | Reply::GrantedUntil { .. });
        assert!(replies.iter().filter(is_grant).count() >= legal, "run {run}: {replies:?}");
    }
    assert!(server.is_running());
}
