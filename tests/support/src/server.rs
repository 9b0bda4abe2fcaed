//! A real server process.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Identity, PATIENCE, Usage, binary, wait_until};

/// How a server is to be started; each start makes a new process.
#[derive(Clone, Debug, Default)]
pub struct ServerBuilder {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    listen: Option<SocketAddr>,
    admin: bool,
    open_files: Option<u32>,
    file_kib: Option<u32>,
    netns: Option<String>,
    under: Vec<OsString>,
}

impl ServerBuilder {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The client address; by default a free port of 127.0.0.1.
    #[must_use]
    pub const fn listen(mut self, addr: SocketAddr) -> Self {
        self.listen = Some(addr);
        self
    }

    /// Requires this client token.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.env("TICKETING_CLIENT_TOKEN", token)
    }

    /// Keeps its state in this folder.
    #[must_use]
    pub fn data_dir(self, folder: &Path) -> Self {
        self.arg("--data-dir").arg(folder)
    }

    /// Speaks TLS with this certificate.
    #[must_use]
    pub fn tls(self, identity: &Identity) -> Self {
        self.arg("--tls-cert").arg(&identity.certificate).arg("--tls-key").arg(&identity.key)
    }

    /// Serves the admin pages too, on a free port.
    #[must_use]
    pub const fn admin(mut self) -> Self {
        self.admin = true;
        self
    }

    /// Limits the number of its open files.
    #[must_use]
    pub const fn open_files(mut self, limit: u32) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Limits the size of its files.
    #[must_use]
    pub const fn file_kib(mut self, limit: u32) -> Self {
        self.file_kib = Some(limit);
        self
    }

    /// Runs it in this network namespace; it takes root. The admin pages can then be
    /// fetched only by a thread that is in there too.
    #[must_use]
    pub fn netns(mut self, name: &str) -> Self {
        self.netns = Some(name.to_owned());
        self
    }

    /// Runs it under another program, which must leave it the process id that it itself
    /// was started with.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> Self {
        self.under = words.iter().map(OsString::from).collect();
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not; the message has its log.
    #[must_use]
    #[track_caller]
    pub fn start(&self) -> Server {
        self.try_start().unwrap_or_else(|(status, log)| panic!("the server did not start ({status}):\n{log}"))
    }

    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// Its exit status and its log, if it ends before it listens.
    ///
    /// # Panics
    /// If it neither listens nor ends.
    pub fn try_start(&self) -> Result<Server, (ExitStatus, String)> {
        let mut child = self.command().spawn().expect("a server process");
        let log = Log::default();
        log.collect(child.stderr.take().expect("its log"));
        let mut server = Server { child, log, client: ([0, 0, 0, 0], 0).into(), admin: None };
        let start = Instant::now();
        loop {
            if let Some((client, admin)) = server.log.lines().iter().find_map(|line| listening(line)) {
                (server.client, server.admin) = (client, admin);
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait().expect("the state of the server process") {
                wait_until("the end of the log", PATIENCE, || server.log.has_ended());
                return Err((status, server.log()));
            }
            assert!(start.elapsed() < PATIENCE, "the server does not listen:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self) -> Command {
        let path = binary("ticketing-server", "ticketing-server");
        // Each of these becomes the server, so the process id stays.
        let mut words: Vec<OsString> = Vec::new();
        if let Some(netns) = &self.netns {
            words.extend(["ip", "netns", "exec", netns].map(OsString::from));
        }
        // The shell counts files in blocks of 512 bytes.
        let limits = [("-n", self.open_files), ("-f", self.file_kib.map(|kib| kib * 2))];
        for (option, limit) in limits.into_iter().filter_map(|(option, limit)| Some((option, limit?))) {
            let script = format!("ulimit {option} {limit}; exec \"$0\" \"$@\"");
            words.extend(["sh", "-c", &script].map(OsString::from));
        }
        words.extend(self.under.iter().cloned());
        words.push(path.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        command.arg("--listen").arg(self.listen.unwrap_or(any_port).to_string());
        if self.admin {
            command.arg("--admin").arg(any_port.to_string());
        }
        command.args(&self.args);
        // What the caller's shell has set is no part of a test.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TICKETING_"))
        {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

/// The addresses in the log line, text or JSON, that says where the server listens.
fn listening(line: &str) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let fields = line.contains("listening").then_some(line)?;
    let field = |name: &str| {
        let (_, rest) = fields
            .split_once(&format!("{name}="))
            .or_else(|| fields.split_once(&format!("\"{name}\":\"")))?;
        rest.split([' ', '"']).next()?.parse().ok()
    };
    Some((field("client")?, field("admin")))
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: Log,
    client: SocketAddr,
    admin: Option<SocketAddr>,
}

impl Server {
    /// Starts a server with these arguments, on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If it does not come up; the message has its log.
    #[must_use]
    #[track_caller]
    pub fn start(args: &[&str]) -> Self {
        Self::builder().args(args).start()
    }

    /// For everything that [`Server::start`] does not say.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Where it serves clients.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.client
    }

    /// Where it serves the admin pages.
    ///
    /// # Panics
    /// If it was started without.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin.expect("a server with admin pages")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it uses now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid())
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lines().join("\n")
    }

    /// Waits until a line of its log contains this text.
    ///
    /// # Panics
    /// If none does in time.
    #[track_caller]
    pub fn wait_log(&self, text: &str) {
        let start = Instant::now();
        while !self.log.lines().iter().any(|line| line.contains(text)) {
            assert!(start.elapsed() < PATIENCE, "no {text:?} in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is gone.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running server");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it does not end in time.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the state of the server process") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If the system does not say.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the state of the server process").is_none()
    }

    /// Kills it, without a warning.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn kill(mut self) {
        self.child.kill().expect("a process of ours");
        self.child.wait().expect("a process of ours");
    }

    /// Fetches an admin page; returns the HTTP status and the body.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> (u16, String) {
        self.try_admin_get(path, PATIENCE).expect("an answer")
    }

    /// Fetches an admin page; returns the HTTP status and the body.
    ///
    /// # Errors
    /// Those of the system, if there is no answer within `patience`.
    ///
    /// # Panics
    /// If it was started without admin pages, or the answer is no HTTP.
    pub fn try_admin_get(&self, path: &str, patience: Duration) -> io::Result<(u16, String)> {
        let mut tcp = TcpStream::connect_timeout(&self.admin_addr(), patience)?;
        tcp.set_read_timeout(Some(patience))?;
        write!(tcp, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((status.expect("an HTTP status"), body.to_owned()))
    }

    /// The value of a metric, summed over its labels; `None`: there is no such metric.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    #[track_caller]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, page) = self.admin_get("/metrics");
        let samples = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let value = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
            value.strip_prefix(' ')?.trim().parse::<f64>().ok()
        });
        samples.reduce(|sum, value| sum + value)
    }
}

impl Drop for Server {
    #[allow(clippy::print_stderr)] // The test harness shows it with a failed test.
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the server:\n{}", self.log());
        }
    }
}

/// The lines that a process wrote so far, read on a thread of its own so that
/// a full pipe never stops the process.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<(Vec<String>, bool)>>);

impl Log {
    fn collect(&self, stderr: ChildStderr) {
        let log = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                log.lock().0.push(String::from_utf8_lossy(&line).into_owned());
            }
            log.lock().1 = true;
        });
    }

    fn lines(&self) -> Vec<String> {
        self.lock().0.clone()
    }

    fn has_ended(&self) -> bool {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<String>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_read_from_the_log() {
        let (client, admin) = (([127, 0, 0, 1], 41234).into(), ([127, 0, 0, 1], 41235).into());
        let text =
            "2026-01-01T00:00:00Z  INFO listening client=127.0.0.1:41234 admin=127.0.0.1:41235 tls=false";
        assert_eq!(listening(text), Some((client, Some(admin))));
        let json =
            r#"{"level":"INFO","fields":{"message":"listening","client":"127.0.0.1:41234","tls":false}}"#;
        assert_eq!(listening(json), Some((client, None)));
        assert_eq!(listening("INFO starting client=127.0.0.1:41234"), None);
    }
}
