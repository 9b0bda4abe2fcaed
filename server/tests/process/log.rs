//! A log that nobody takes costs nobody anything.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use ticketing_test_support::{PATIENCE, Raw, Reply, binary, wait_until};

const TOKEN: &str = "a client token of many bytes";

/// What the contract allows, and something for a busy machine.
const STOPPED: Duration = Duration::from_secs(5 + 3);

/// A server whose log does not tell where it listens.
struct Silent {
    child: Child,
    address: SocketAddr,
    /// Keeps the port from everybody who asks for any; the server takes it all the same.
    _port: Socket,
}

impl Silent {
    fn start(stderr: impl Into<Stdio>) -> Self {
        let port = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        port.set_reuse_address(true).unwrap();
        port.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let address = port.local_addr().unwrap().as_socket().unwrap();
        let child = Command::new(binary("ticketing-server", "ticketing-server"))
            .args(["--log-level", "debug", "--listen", &address.to_string()])
            .env("TICKETING_CLIENT_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        wait_until("it listens", PATIENCE, || std::net::TcpStream::connect(address).is_ok());
        Self { child, address, _port: port }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Opens a session, and sees a lock granted and released.
    fn serves(&self) {
        let mut raw = Raw::open_with(self.address, TOKEN.as_bytes(), false);
        let token = raw.take("k", 1, 60);
        raw.release("k", token);
        raw.expect(&Reply::released(token, "k"));
    }

    /// Everything that makes a server write a line.
    fn provoke(&self) {
        self.serves();
        // Refused, which is logged where it happens.
        let mut stranger = Raw::connect(self.address);
        stranger.read_greeting();
        stranger.send(b"no proof\n");
        stranger.expect_error("auth_failed");
        self.signal(rustix::process::Signal::HUP);
        self.serves();
    }

    fn stops(mut self) {
        let start = Instant::now();
        self.signal(rustix::process::Signal::TERM);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(start.elapsed() < STOPPED, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let server = Silent::start(File::options().write(true).open("/dev/full").unwrap());
    server.provoke();
    server.stops();
}

#[test]
fn a_reader_of_the_log_that_goes_away_stops_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let server = Silent::start(writer);
    server.provoke();
    server.stops();

    let (reader, writer) = std::io::pipe().unwrap();
    let server = Silent::start(writer);
    server.provoke();
    drop(reader);
    server.provoke();
    server.stops();
}

#[test]
fn a_reader_of_the_log_that_stalls_stops_nothing() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let server = Silent::start(writer);
    // At debug each of them is worth two lines, and a pipe holds a few hundred.
    for _ in 0..2000 {
        drop(Raw::open_with(server.address, TOKEN.as_bytes(), false));
    }
    server.provoke();
    server.stops();
}

/// A server that cannot start says so, if anybody listens, and ends in any case.
#[test]
fn a_start_that_fails_ends_without_a_log_too() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let status = Command::new(binary("ticketing-server", "ticketing-server"))
        .args(["--listen", &taken.local_addr().unwrap().to_string()])
        .stdout(Stdio::null())
        .stderr(File::options().write(true).open("/dev/full").unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}
