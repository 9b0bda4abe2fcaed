//! Starts that must be refused, signals, and credentials that change.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ticketing_test_support::{
    Authority, PATIENCE, Raw, Reply, Server, ServerBuilder, Signal, wait_until, wire,
};

use crate::timed;

const OLD: &str = "the old client token";
const NEW: &str = "the new client token";

#[track_caller]
fn expect_refused_start(builder: &ServerBuilder, told: &[&str]) {
    match builder.try_start() {
        Ok(_) => panic!("it started: {builder:?}"),
        Err((status, log)) => {
            assert!(status.code().is_some_and(|code| code == 1 || code == 2), "{status}: {log}");
            assert!(!log.contains("panicked"), "{log}");
            for part in told {
                assert!(log.contains(part), "{part:?} is not told: {log}");
            }
        }
    }
}

#[test]
fn k01_bad_settings_are_refused_with_their_reason() {
    let server = || Server::builder();
    expect_refused_start(&server().arg("--no-such-flag"), &["--no-such-flag"]);
    expect_refused_start(&server().args(["--max-connections", "many"]), &["--max-connections"]);
    expect_refused_start(&server().args(["--max-waiters", "0"]), &["max-waiters"]);
    expect_refused_start(&server().args(["--advertise", "no port;"]), &["advertise"]);
    expect_refused_start(&server().args(["--tls-cert", "cert.pem"]), &["--tls-key"]);
    expect_refused_start(
        &server().args(["--client-token-file", "/no/such/file"]),
        &["--client-token-file /no/such/file"],
    );
    let tls = ["--tls-cert", "/no/such/cert", "--tls-key", "/no/such/key"];
    expect_refused_start(&server().args(tls), &["--tls-cert", "/no/such/cert"]);
    expect_refused_start(
        &server().env("TICKETING_MAX_HELD", "abc"),
        &["--max-held", "TICKETING_MAX_HELD", "abc"],
    );
    expect_refused_start(
        &server().args(["--admin", "localhost:9225"]),
        &["--admin", "an IP address and a port"],
    );
    expect_refused_start(
        &server().args(["--max-held", "abc"]).env("TICKETING_MAX_HELD", "5"),
        &["--max-held"],
    );
    expect_refused_start(&server().token("fifteen bytes.."), &["at least 16"]);
    expect_refused_start(&server().args(["--admin", "0.0.0.0:0"]), &["--admin-allow-remote"]);
    // A pipe is a file of settings too; one to which nobody writes is not waited for.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    expect_refused_start(&server().arg("--config").arg(&pipe), &["pipe", "cannot be read"]);
    let taken = Server::start(&[]);
    expect_refused_start(&server().listen(taken.addr()), &[&taken.addr().to_string()]);
}

#[test]
fn k02_nobody_is_served_from_afar_without_a_token() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    for address in [everywhere, "[::]:0".parse().unwrap()] {
        expect_refused_start(&Server::builder().listen(address), &["token", "--insecure-no-auth"]);
    }
    let _ = Server::builder().listen(everywhere).token(OLD).start();
    let _ = Server::builder().listen(everywhere).arg("--insecure-no-auth").start();
}

#[test]
fn k03_no_secret_is_shown() {
    let server = Server::builder().token(OLD).args(["--log-level", "trace"]).admin().start();
    let mut raw = Raw::connect(server.addr());
    raw.read_greeting();
    raw.send("wrong\n");
    raw.expect_error("auth_failed");
    let _ = Raw::open_with(server.addr(), OLD.as_bytes(), false);
    let pages = ["/metrics", "/status"].map(|page| server.admin_get(page).1).concat();
    let command = fs::read_to_string(format!("/proc/{}/cmdline", server.pid().as_raw_pid())).unwrap();
    assert!(!format!("{pages}{command}{}", server.log()).contains(OLD));
    assert!(server.metric("ticketing_sessions_total") >= Some(1.0));
}

#[test]
fn k04_sigterm_drains() {
    let mut server = Server::builder().admin().start();
    let mut holder = Raw::open(server.addr());
    let mut waiter = Raw::open(server.addr());
    let mut idle = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let kept = holder.take("kept", 1, 60);
    waiter.acquire("k", 2, 60, 60);
    waiter.acquire("k", 3, 60, 60);
    waiter.release("fence", 1);
    waiter.expect(&Reply::not_held(1, "fence"));
    let start = Instant::now();
    server.signal(Signal::TERM);
    // Waiters are refused, the newest as well as the oldest, and new acquires too.
    let mut refused = [waiter.read(), waiter.read()];
    refused.sort();
    assert_eq!(refused, [Reply::busy(2, "k"), Reply::busy(3, "k")]);
    holder.send([wire::acquire("free", 4, 60, 60), wire::acquire("k", 5, 60, 60)].concat());
    holder.expect(&Reply::busy(4, "free"));
    holder.expect(&Reply::busy(5, "k"));
    assert_eq!(server.admin_get("/readyz").0, 503);
    assert_eq!(server.admin_get("/healthz").0, 200);
    Raw::connect(server.addr()).expect_error("shutting_down");
    // Releases are served; a lock is still held, so the server still waits for its release.
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    holder.release("kept", kept + 1);
    holder.expect(&Reply::not_held(kept + 1, "kept"));
    for raw in [&mut holder, &mut waiter, &mut idle] {
        raw.expect_error("shutting_down");
    }
    let status = server.wait_exit();
    assert!(status.success(), "{status}: {}", server.log());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
}

#[test]
fn k04_a_drain_ends_early_when_nothing_is_held_and_never_waits_for_the_stubborn() {
    for (stubborn, durable) in [(false, false), (true, false), (false, true), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let builder = Server::builder();
        let builder = if durable { builder.data_dir(folder.path()) } else { builder };
        let mut server = builder.start();
        let mut raws: Vec<Raw> = (0..50).map(|_| Raw::open(server.addr())).collect();
        let _stranger = Raw::connect(server.addr());
        if stubborn {
            let _ = raws[0].take("k", 1, 250);
            raws[1].send(&wire::acquire("k", 1, 60, 60)[..9]);
            crate::closing::fill_with_unread_answers(&raws[2]);
        }
        server.signal(if stubborn { Signal::TERM } else { Signal::INT });
        let (status, took) = timed(|| server.wait_exit());
        assert!(status.success(), "{status}: {}", server.log());
        assert!(took < Duration::from_secs(5), "it took {took:?}");
    }
}

#[test]
fn k05_client_tokens_rotate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write(&format!("{OLD}\n"));
    let server = Server::builder().arg("--client-token-file").arg(&file).start();
    let accepts = |token: &str| {
        let mut raw = Raw::connect(server.addr());
        let nonce = raw.read_greeting();
        raw.send(format!("{}\n", ticketing_protocol::handshake::digest(token.as_bytes(), &nonce)));
        matches!(raw.read(), Reply::Leader(_))
    };
    let reload = |reloads: usize, word: &str| {
        server.signal(Signal::HUP);
        wait_until("the reload", PATIENCE, || server.log().matches(word).count() == reloads);
    };
    let mut open = Raw::open_with(server.addr(), OLD.as_bytes(), false);
    let lock = open.take("k", 1, 60);
    assert!(accepts(OLD) && !accepts(NEW));
    write(&format!("{OLD}\n{NEW}\n"));
    reload(1, "reloaded");
    assert!(accepts(OLD) && accepts(NEW));
    write(&format!("{NEW}\n"));
    reload(2, "reloaded");
    assert!(!accepts(OLD) && accepts(NEW));
    // A bad file changes nothing.
    for bad in ["", "short\n", "three tokens, which\nare more than there\nshould be in a file\n"] {
        write(bad);
        let failures = server.log().matches("reload failed").count();
        reload(failures + 1, "reload failed");
        assert!(!accepts(OLD) && accepts(NEW));
    }
    // Who is in stays in.
    open.release("k", lock);
    open.expect(&Reply::released(lock, "k"));
    assert!(!server.log().contains("client token\n") && !server.log().contains(NEW));
}

#[test]
fn k06_certificates_rotate() {
    let (old, new) = (Authority::new(), Authority::new());
    let identity = old.issue("server", &["localhost"]);
    let server = Server::builder().tls(&identity).start();
    let trusts = |authority: &Authority| {
        let mut raw = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
        // Sends nothing of meaning, but makes the TLS handshake happen.
        raw.try_send("x").is_ok()
    };
    let mut open = Raw::connect_tls(server.addr(), "localhost", old.client_config());
    open.handshake(b"", false);
    let lock = open.take("k", 1, 60);
    assert!(trusts(&old) && !trusts(&new));
    let next = new.issue("server", &["localhost"]);
    fs::copy(&next.certificate, &identity.certificate).unwrap();
    // Half a rotation: the certificate and the key do not fit together.
    server.signal(Signal::HUP);
    server.wait_log("reload failed");
    assert!(trusts(&old) && !trusts(&new));
    fs::copy(&next.key, &identity.key).unwrap();
    server.signal(Signal::HUP);
    server.wait_log("reloaded");
    assert!(!trusts(&old) && trusts(&new));
    open.release("k", lock);
    open.expect(&Reply::released(lock, "k"));
}

#[test]
fn k07_the_admin_pages_say_how_it_is() {
    let server = Server::builder().admin().start();
    let mut raw = Raw::open(server.addr());
    let _ = raw.take("held", 1, 60);
    raw.acquire("held", 2, 60, 60);
    raw.release("fence", 1);
    raw.expect(&Reply::not_held(1, "fence"));
    assert_eq!(server.admin_get("/healthz").0, 200);
    assert_eq!(server.admin_get("/readyz").0, 200);
    assert_eq!(server.admin_get("/nothing").0, 404);
    wait_until("the metrics", PATIENCE, || {
        server.metric("ticketing_held_locks") == Some(1.0) && server.metric("ticketing_waiters") == Some(1.0)
    });
    let (status, page) = server.admin_get("/status");
    assert!(status == 200 && page.trim_start().starts_with('{'), "{page}");
    // A page that nobody reads to its end, and a line that never ends, hurt nobody.
    let mut slow = Raw::connect(server.admin_addr());
    slow.send([b'x'; 64 * 1024]);
    let _ = Raw::open(server.addr());
    assert_eq!(server.admin_get("/healthz").0, 200);
}

/// A peer that vanished without a word is looked for by the system.
#[test]
fn k08_tcp_keep_alive_is_on() {
    let server = Server::start(&[]);
    let raw = Raw::open(server.addr());
    let hex = |addr: SocketAddr| format!("0100007F:{:04X}", addr.port());
    let (local, remote) = (hex(server.addr()), hex(raw.tcp().local_addr().unwrap()));
    // 02 is the timer of keep-alive probes, in ticks of 10 ms. It is armed when everything is acknowledged.
    wait_until("a keep-alive probe within five seconds", PATIENCE, || {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let mut ends = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours =
            ends.find(|fields| fields.get(1..3) == Some(&[&*local, &*remote])).expect("the server's end");
        let (timer, ticks) = ours[5].split_once(':').unwrap();
        timer == "02" && u32::from_str_radix(ticks, 16).unwrap() <= 500
    });
}
