//! Runs the real `ticketing` against a real server, or one that misbehaves on purpose.
#![allow(dead_code, unreachable_pub)] // Every test file uses its own part of it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::Value;
use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Extension, Key, ServerFrame};
use ticketing_test_support::{PATIENCE, Server, wait_until};

pub const TICKETING: &str = env!("CARGO_BIN_EXE_ticketing");

/// `ticketing` with nothing of the caller's environment that it would heed.
pub fn bare() -> Command {
    clean(Command::new(TICKETING))
}

/// `ticketing` that speaks to this server.
pub fn ticketing(server: &Server) -> Command {
    at(server.addr())
}

/// `ticketing` that speaks to this address.
pub fn at(addr: SocketAddr) -> Command {
    let mut command = bare();
    command.env("TICKETING_SERVERS", addr.to_string());
    command
}

/// A shell in which `$TICKETING` speaks to this server.
pub fn shell(server: &Server, script: &str) -> Command {
    let mut command = clean(Command::new("sh"));
    command.args(["-c", script]);
    command.env("TICKETING_SERVERS", server.addr().to_string()).env("TICKETING", TICKETING);
    command
}

fn clean(mut command: Command) -> Command {
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TICKETING")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Run {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// A process that is killed if the test ends first.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    started: Instant,
}

impl Running {
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child.as_ref().unwrap())
    }

    #[track_caller]
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end, and for the end of all that could still write for it.
    #[track_caller]
    pub fn finish(mut self) -> Run {
        let mut child = self.child.take().unwrap();
        let stdout = read_to_end(child.stdout.take().unwrap());
        let stderr = read_to_end(child.stderr.take().unwrap());
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > PATIENCE * 2 {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!(
                    "it does not end: {:?} {:?}",
                    stdout.recv_timeout(PATIENCE),
                    stderr.recv_timeout(PATIENCE)
                );
            }
            thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        let code = status.code().or_else(|| status.signal().map(|signal| -signal));
        let said = |output: Receiver<String>| {
            output.recv_timeout(PATIENCE).expect("it left a process behind that holds its output open")
        };
        Run { code: code.unwrap(), stdout: said(stdout), stderr: said(stderr), took }
    }
}

fn read_to_end(mut output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        // Nobody listens any more if the test has failed.
        let _ = sender.send(text);
    });
    receiver
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub trait Start {
    fn start(&mut self) -> Running;

    /// Runs it to its end.
    #[track_caller]
    fn run(&mut self) -> Run {
        self.start().finish()
    }

    /// Runs it with these arguments.
    #[track_caller]
    fn run_with<A: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = A>) -> Run;
}

impl Start for Command {
    fn start(&mut self) -> Running {
        let started = Instant::now();
        Running { child: Some(self.spawn().unwrap()), started }
    }

    #[track_caller]
    fn run_with<A: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = A>) -> Run {
        self.args(args).run()
    }
}

/// Waits until the file has a whole line, and returns it.
#[track_caller]
pub fn first_line(path: &Path) -> String {
    let read = || fs::read_to_string(path).unwrap_or_default();
    wait_until(&format!("a line in {}", path.display()), PATIENCE, || read().contains('\n'));
    read().lines().next().unwrap().to_owned()
}

/// The state letter of a process; `None`: there is none, or a zombie.
pub fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (state != 'Z' && state != 'X').then_some(state)
}

#[track_caller]
pub fn wait_gone(pid: &str) {
    wait_until(&format!("the end of process {pid}"), PATIENCE, || state(pid).is_none());
}

/// An address at which nothing listens.
pub fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What a misbehaving server does with an acquire.
#[derive(Clone, Copy, Debug)]
pub enum Misdeed {
    /// Grants, whoever holds the lock already.
    GrantToAll,
    /// Closes the connection without an answer.
    HangUp,
    /// Says nothing.
    StaySilent,
    /// Answers a question that nobody asked.
    GrantAnother,
}

/// A server that opens sessions as it should, and then does as told.
pub fn misbehaving(misdeed: Misdeed) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream, misdeed));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, misdeed: Misdeed) -> Option<()> {
    let addr = stream.local_addr().ok()?;
    stream.write_all(b"TICKETING/1 AAAAAAAAAAAAAAAAAAAAAA\n").ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    reader.read_line(&mut String::new()).ok()?;
    stream.write_all(format!("L{addr}\n").as_bytes()).ok()?;

    let mut decoder = Decoder::<ClientToServer>::new(Extension::Off);
    loop {
        let mut answers = Vec::new();
        let mut hang_up = false;
        let bytes = reader.fill_buf().ok()?.to_vec();
        if bytes.is_empty() {
            return None;
        }
        reader.consume(bytes.len());
        decoder
            .feed(&bytes, |frame| match (frame, misdeed) {
                (ClientFrame::Acquire { .. }, Misdeed::HangUp) => hang_up = true,
                (ClientFrame::Acquire { owner, key, .. }, Misdeed::GrantToAll) => {
                    ServerFrame::Granted { token: owner | 1, owner, key }.encode(&mut answers);
                }
                (ClientFrame::Acquire { owner, .. }, Misdeed::GrantAnother) => {
                    let key = Key::new("another").unwrap();
                    ServerFrame::Granted { token: 1, owner, key }.encode(&mut answers);
                }
                (ClientFrame::Release { token, key }, _) => {
                    ServerFrame::Released { token, key }.encode(&mut answers);
                }
                _ => {}
            })
            .ok()?;
        if hang_up {
            return None;
        }
        stream.write_all(&answers).ok()?;
    }
}
