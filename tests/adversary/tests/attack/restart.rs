//! What a restart forgets, and what it must not.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wire};

use crate::bulk::{pipelined, token_of};

fn domain(raw: &Raw) -> String {
    let greeting = raw.greeting();
    let (_, rest) = greeting.split_once(";domain=").unwrap();
    rest.split([';', ' ']).next().unwrap().to_owned()
}

/// Grants some locks, of keys of this run, and returns the first and the last token.
fn grants(server: &Server, run: u64, count: u64) -> (u64, u64) {
    let mut raw = Raw::open(server.addr());
    let stream: Vec<u8> =
        (0..count).flat_map(|number| wire::acquire(format!("k-{run}-{number}"), 1, 0, 60)).collect();
    let mut tokens = Vec::new();
    pipelined(&mut raw, &stream, count, |reply| tokens.push(token_of(&reply)));
    assert!(tokens.windows(2).all(|pair| pair[1] == pair[0] + 1), "tokens have no gap");
    (tokens[0], tokens[tokens.len() - 1])
}

#[test]
fn k10_tokens_grow_over_restarts_without_a_data_directory() {
    let (mut last, mut server) = (0, Server::start(&[]));
    let addr = server.addr();
    for run in 0..8 {
        let (first, newest) = grants(&server, run, 3000);
        assert!(first > last, "token {first} after {last}");
        assert!(i64::try_from(newest).is_ok(), "{newest} does not fit a signed column");
        last = newest;
        assert_eq!(domain(&open(&server)), "0".repeat(32));
        server.kill();
        server = Server::builder().listen(addr).start();
    }
}

fn open(server: &Server) -> Raw {
    Raw::open(server.addr())
}

#[test]
fn k11_tokens_grow_over_crashes_with_a_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().data_dir(folder.path());
    let (mut last, mut domains) = (0, Vec::new());
    for run in 0..12_u64 {
        let server = builder.start();
        let (first, newest) = grants(&server, run, 1 + run * 1500);
        assert!(first > last, "run {run}: token {first} after {last}");
        last = newest;
        domains.push(domain(&open(&server)));
        // Always without a warning, sometimes in the middle of work.
        let mut busy = open(&server);
        busy.send(
            (0..2000)
                .flat_map(|number| wire::acquire(format!("b-{run}-{number}"), 1, 0, 60))
                .collect::<Vec<_>>(),
        );
        if run % 2 == 0 {
            last = (0..500).map(|_| token_of(&busy.read())).max().unwrap();
        }
        server.kill();
        // What was on its way can still be read; it counts as given out.
        while let Some(reply) = busy.read_within(PATIENCE) {
            last = last.max(token_of(&reply));
        }
    }
    assert!(domains.iter().all(|domain| domain == &domains[0]), "{domains:?}");
    assert_ne!(domains[0], "0".repeat(32));
    // A folder of its own is a domain of its own.
    let other = tempfile::tempdir().unwrap();
    let server = Server::builder().data_dir(other.path()).start();
    assert_ne!(domain(&open(&server)), domains[0]);
}

#[test]
fn k12_a_data_directory_has_one_user_and_is_never_guessed_at() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().data_dir(folder.path());
    let server = builder.start();
    let (status, log) = builder.try_start().expect_err("two servers would give out the same tokens");
    assert!(!status.success() && log.contains("another"), "{log}");
    server.kill();
    // Damage of every file in it is noticed, but of the one that need not even be there after a loss of power.
    let node = folder.path().join("node");
    let files: Vec<_> = fs::read_dir(&node).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut damaged = 0;
    for file in files {
        let whole = fs::read(&file).unwrap();
        if whole.is_empty() || file.ends_with("acknowledged") {
            continue;
        }
        for damage in [&whole[..whole.len() / 2], &[], b"garbage\n"] {
            fs::write(&file, damage).unwrap();
            let refused = builder.try_start();
            let (status, log) = refused.expect_err(&format!("{} bytes in {}", damage.len(), file.display()));
            assert!(!status.success() && log.contains(file.to_str().unwrap()), "{log}");
            damaged += 1;
        }
        fs::write(&file, &whole).unwrap();
    }
    assert!(damaged > 0);
    let _ = builder.start();
}

/// Keys, owners and tokens are nobody else's to read.
#[test]
fn k12_a_data_directory_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("made/by the server");
    let server = Server::builder().data_dir(&data).start();
    let token = Raw::open(server.addr()).take("k", 1, 60);
    assert!(token > 0);
    server.kill();
    let mut seen = 0;
    let mut folders = vec![data];
    while let Some(path) = folders.pop() {
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
        if metadata.is_dir() {
            folders.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    assert!(seen > 2, "{seen}");
}

/// The system ends who writes more than a file may hold, without a word, unless it is asked
/// not to. Then the write fails, and the server ends with its reason.
#[test]
fn k12_a_file_that_may_not_grow_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::builder().data_dir(folder.path()).file_kib(4096).start();
    let mut raw = Raw::open(server.addr());
    let mut answers = raw.tcp().try_clone().unwrap();
    let reader = std::thread::spawn(move || io::copy(&mut answers, &mut io::sink()));
    for number in 0..2_000_000_u64 {
        if raw.try_send(wire::acquire(format!("{number:0>120}"), number, 0, 250)).is_err() {
            break;
        }
    }
    let status = server.wait_exit();
    let _ = reader.join();
    assert!(status.code().is_some_and(|code| code != 0), "{status}: {}", server.log());
    assert!(server.log().to_lowercase().contains("too large"), "{}", server.log());
}

#[test]
fn k13_restart_grace() {
    let server = Server::builder().args(["--restart-grace", "3"]).admin().start();
    let start = Instant::now();
    assert_eq!(server.admin_get("/readyz").0, 503);
    let mut refused = Raw::connect(server.addr());
    let nonce = refused.read_greeting();
    let asked = Instant::now();
    // Whatever comes behind the answer is not looked at.
    let answer = format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)).into_bytes();
    refused.send([answer, wire::acquire("k", 1, 0, 250)].concat());
    refused.expect_error("not_active");
    assert!(asked.elapsed() >= Duration::from_millis(500), "refused after {:?}", asked.elapsed());
    let mut raw = loop {
        let mut raw = Raw::connect(server.addr());
        let nonce = raw.read_greeting();
        raw.send(format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)));
        match raw.read() {
            Reply::Leader(_) => break raw,
            other => assert_eq!(other, Reply::error("not_active")),
        }
    };
    // The server's own clock began a little before ours.
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(2500) && took < PATIENCE, "served after {took:?}");
    let _ = raw.take("k", 2, 10);
    assert_eq!(server.admin_get("/readyz").0, 200);
}
