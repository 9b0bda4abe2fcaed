//! TLS: half-made, mistaken, cut off.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use ticketing_test_support::{Authority, Closed, PATIENCE, Raw, Reply, Server, wire};

use crate::at_once;

/// The start of a ClientHello, as any TLS client would send it.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

#[test]
fn b18_a_stalled_handshake_is_cut_and_disturbs_nobody() {
    let authority = Authority::new();
    let server = Server::builder().tls(&authority.issue("server", &["localhost"])).start();
    let addr = server.addr();
    let config = &authority.client_config();
    let five_seconds = Duration::from_secs(5);
    let cut = move |start: Instant, mut tcp: TcpStream| {
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // A reset ends it as well as an end in order.
        let _ = tcp.read_to_end(&mut rest);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(9), "cut only after {took:?}");
        took
    };
    at_once([
        Box::new(move || {
            let tcp = TcpStream::connect(addr).unwrap();
            assert!(cut(Instant::now(), tcp) >= five_seconds - Duration::from_millis(500));
        }),
        Box::new(move || {
            let start = Instant::now();
            let mut tcp = TcpStream::connect(addr).unwrap();
            for byte in HELLO {
                if tcp.write_all(&[*byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            cut(start, tcp);
        }),
        Box::new(move || {
            let stalled: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(addr).unwrap()).collect();
            let start = Instant::now();
            for number in 0..5 {
                let mut raw = Raw::connect_tls(addr, "localhost", config.clone());
                raw.handshake(b"", false);
                let key = format!("k-{number}");
                let token = raw.take(&key, 1, 10);
                raw.release(&key, token);
                raw.expect(&Reply::released(token, &key));
            }
            assert!(start.elapsed() < Duration::from_secs(4), "others waited for stalled handshakes");
            drop(stalled);
        }),
    ]);
}

#[test]
fn b18_plain_text_on_a_tls_port_is_cut() {
    let authority = Authority::new();
    let server = Server::builder().tls(&authority.issue("server", &["localhost"])).start();
    for bytes in [
        &wire::acquire("k", 1, 0, 10)[..],
        b"WvDLEd0VIA9cVatiwxXYXRGMDSXw0ibHllLgAMBffdg\n",
        b"\n\n\n\n\n\n\n\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 600],
    ] {
        let mut tcp = TcpStream::connect(server.addr()).unwrap();
        tcp.write_all(bytes).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        let start = Instant::now();
        let _ = tcp.read_to_end(&mut answer);
        assert!(start.elapsed() < Duration::from_secs(9));
        assert!(!answer.starts_with(b"TICKETING"), "the greeting came in the clear");
    }
    let mut raw = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
    raw.handshake(b"", false);
    let _ = raw.take("k", 1, 10);
}

#[test]
fn b18_tls_on_a_plain_port_is_refused() {
    let server = Server::start(&[]);
    let mut raw = Raw::connect(server.addr());
    raw.read_greeting();
    raw.send([HELLO, &[0x0a; 200]].concat());
    raw.expect_error("auth_failed");
    let authority = Authority::new();
    let mut raw = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
    // A TLS client takes the greeting for garbage.
    assert!(raw.try_send("x").is_err());
}

#[test]
fn b18_a_whole_session_under_tls() {
    let authority = Authority::new();
    let identity = authority.issue("server", &["localhost", "127.0.0.1"]);
    let token = "a token of twenty-nine bytes.";
    let server = Server::builder().tls(&identity).token(token).start();
    let mut raw = Raw::connect_tls(server.addr(), "127.0.0.1", authority.client_config());
    raw.handshake(token.as_bytes(), true);
    // Many records, cut anywhere.
    let mut frames = Vec::new();
    for number in 0..2000 {
        frames.extend(wire::acquire(format!("k-{number}"), number, 0, 10));
    }
    raw.send_in_pieces(frames, 997, Duration::ZERO);
    for number in 0..2000 {
        let _ = raw.expect_granted_until(format!("k-{number}"), number);
    }
    raw.acquire("bad key", 1, 0, 10);
    // With a goodbye: the client can tell the end from a cut.
    raw.expect_error("bad_key");
    let mut wrong = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
    wrong.read_greeting();
    wrong.send("wrong\n");
    wrong.expect_error("auth_failed");
}

#[test]
fn b19_a_cut_off_frame_is_no_frame() {
    let authority = Authority::new();
    let server = Server::builder().tls(&authority.issue("server", &["localhost"])).start();
    let connect = || {
        let mut raw = Raw::connect_tls(server.addr(), "localhost", authority.client_config());
        raw.handshake(b"", false);
        raw
    };
    for goodbye in [true, false] {
        let mut raw = connect();
        raw.send([wire::acquire("whole", 1, 0, 10), wire::acquire("cut", 1, 0, 10)[..13].to_vec()].concat());
        let token = raw.expect_granted("whole", 1);
        if goodbye {
            raw.half_close();
            assert_eq!(raw.expect_closed(), Closed::Eof);
        } else {
            raw.tcp().shutdown(Shutdown::Write).unwrap();
            raw.expect_closed();
        }
        let mut other = connect();
        let cut = other.take("cut", 2, 10);
        other.release("cut", cut);
        other.expect(&Reply::released(cut, "cut"));
        other.release("whole", token);
        other.expect(&Reply::released(token, "whole"));
    }
}
