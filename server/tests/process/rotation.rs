//! Token and certificate change without a restart.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;
use ticketing_protocol::handshake::digest;
use ticketing_test_support::{Authority, Raw, Reply, Server, Signal};

const OLD: &str = "the old secret of many bytes";
const NEW: &str = "the new secret of many bytes";

fn is_accepted(server: &Server, token: &str) -> bool {
    let mut raw = Raw::connect(server.addr());
    let nonce = raw.read_greeting();
    raw.send(format!("{}\n", digest(token.as_bytes(), &nonce)));
    let reply = raw.read();
    assert!(matches!(reply, Reply::Leader(_)) || reply == Reply::error("auth_failed"), "{reply:?}");
    matches!(reply, Reply::Leader(_))
}

#[test]
fn a_token_is_rotated_without_losing_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{OLD}\n")).unwrap();
    let server = Server::builder().arg("--client-token-file").arg(&file).start();
    let mut early = Raw::open_with(server.addr(), OLD.as_bytes(), false);
    let held = early.take("k", 1, 60);
    assert!(is_accepted(&server, OLD) && !is_accepted(&server, NEW) && !is_accepted(&server, ""));

    fs::write(&file, format!("{OLD}\n{NEW}\n")).unwrap();
    assert!(!is_accepted(&server, NEW), "a file counts when it is asked for");
    server.signal(Signal::HUP);
    server.wait_log("reloaded");
    assert!(is_accepted(&server, OLD) && is_accepted(&server, NEW));

    // A file that makes no sense changes nothing.
    fs::write(&file, "short\n").unwrap();
    server.signal(Signal::HUP);
    server.wait_log("reload failed");
    assert!(server.log().contains(file.to_str().unwrap()));
    assert!(is_accepted(&server, OLD) && is_accepted(&server, NEW));

    fs::write(&file, NEW).unwrap();
    server.signal(Signal::HUP);
    ticketing_test_support::wait_until("the old token is gone", ticketing_test_support::PATIENCE, || {
        !is_accepted(&server, OLD)
    });
    assert!(is_accepted(&server, NEW));
    early.release("k", held);
    early.expect(&Reply::released(held, "k"));
}

/// Whether a client that trusts this authority completes the TLS handshake: only then can it send.
fn trusts(server: &Server, config: &Arc<ClientConfig>) -> bool {
    Raw::connect_tls(server.addr(), "localhost", Arc::clone(config)).try_send(b"\n").is_ok()
}

#[test]
fn a_certificate_is_rotated_without_losing_a_session() {
    let (old, new) = (Authority::new(), Authority::new());
    let identity = old.issue("server", &["localhost"]);
    let next = new.issue("server", &["localhost"]);
    let server = Server::builder().tls(&identity).start();
    let mut early = Raw::connect_tls(server.addr(), "localhost", old.client_config());
    early.handshake(b"", false);
    assert!(!trusts(&server, &new.client_config()));

    // The new certificate with the old key does not fit, and the old pair stays.
    fs::copy(&next.certificate, &identity.certificate).unwrap();
    server.signal(Signal::HUP);
    server.wait_log("reload failed");
    assert!(trusts(&server, &old.client_config()));

    fs::copy(&next.key, &identity.key).unwrap();
    server.signal(Signal::HUP);
    server.wait_log("reloaded");
    assert!(trusts(&server, &new.client_config()) && !trusts(&server, &old.client_config()));
    early.take("k", 1, 10);
}

fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A pipe that nobody writes to would never end, and neither would /dev/zero.
#[test]
fn a_file_that_has_no_end_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, OLD).unwrap();
    let authority = Authority::new();
    let identity = authority.issue("server", &["localhost"]);
    let saved = fs::read(&identity.key).unwrap();
    let mut server = Server::builder().tls(&identity).arg("--client-token-file").arg(&token).start();
    let failures = |server: &Server| server.log().matches("reload failed").count();
    for path in [&token, &identity.certificate, &identity.key] {
        let good = fs::read(path).unwrap();
        for number in 0..2 {
            if number == 0 {
                make_pipe(path);
            } else {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            }
            let before = failures(&server);
            server.signal(Signal::HUP);
            ticketing_test_support::wait_until("it is told", ticketing_test_support::PATIENCE, || {
                failures(&server) > before
            });
            let log = server.log();
            let line = log.lines().last().unwrap();
            assert!(line.contains("no regular file") && line.contains(path.to_str().unwrap()), "{line}");
        }
        fs::remove_file(path).unwrap();
        fs::write(path, good).unwrap();
    }
    assert_eq!(saved, fs::read(&identity.key).unwrap());
    server.signal(Signal::HUP);
    server.wait_log("reloaded");
    make_pipe(&token);
    server.signal(Signal::HUP);
    server.signal(Signal::TERM);
    assert!(server.wait_exit().success());
}

#[test]
fn a_server_does_not_start_with_a_file_that_has_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let authority = Authority::new();
    let identity = authority.issue("server", &["localhost"]);
    let cluster = "a=127.0.0.1:1@127.0.0.1:2,b=127.0.0.1:3@127.0.0.1:4,c=127.0.0.1:5@127.0.0.1:6";
    for path in [pipe.to_str().unwrap(), "/dev/zero"] {
        let [cert, key] = [&identity.certificate, &identity.key].map(|path| path.to_str().unwrap());
        for args in [
            &["--client-token-file", path][..],
            &["--tls-cert", path, "--tls-key", key],
            &["--tls-cert", cert, "--tls-key", path],
            &[
                "--cluster",
                cluster,
                "--slot",
                "a",
                "--peer-listen",
                "127.0.0.1:0",
                "--peer-secret-file",
                path,
            ],
        ] {
            let (status, log) = Server::builder().args(args).try_start().err().unwrap();
            assert_eq!(status.code(), Some(1));
            assert!(log.contains("no regular file") && log.contains(path), "{log}");
        }
    }
}
