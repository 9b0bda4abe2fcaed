//! At a terminal: a real one, with an interactive shell in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use common::Start as _;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, wait_until};

/// An interactive shell at a terminal of its own.
struct Session {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    seen: usize,
}

impl Session {
    fn start(server: &Server) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let tty = || File::options().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command.stdin(tty()).stdout(tty()).stderr(tty());
        let bin = std::path::Path::new(common::TICKETING).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("PS1", "$ ").env("TERM", "xterm");
        command.env("TICKETING_SERVERS", server.addr().to_string());
        let shell = command.spawn().unwrap();

        let keyboard = File::from(keyboard);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut session = Self { shell, keyboard, screen, seen: 0 };
        session.expect("$ ");
        // What is typed is not to be mistaken for what is answered.
        session.line("stty -echo");
        session.expect("$ ");
        session
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn line(&mut self, text: &str) {
        self.keys(&format!("{text}\n"));
    }

    /// Waits for a text behind all that was seen before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let start = std::time::Instant::now();
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no {text:?} after {:?} in:\n{screen}", self.seen);
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The exit code of what was run last.
    #[track_caller]
    fn expect_code(&mut self, code: u8) {
        self.line("echo code:$?.");
        self.expect(&format!("code:{code}."));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const ASK: &str = "sh -c 'echo ready; read word; echo got:$word'";

#[test]
fn an_interactive_command_has_the_terminal() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line(&format!("ticketing lock k -- {ASK}"));
    session.expect("ready");
    session.line("hello");
    session.expect("got:hello");
    session.expect_code(0);
    // And the shell has it again.
    session.line("read word; echo \"shell:$word\"");
    session.line("again");
    session.expect("shell:again");
}

#[test]
fn a_command_alone_at_a_terminal_is_in_the_foreground_without_asking() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    let look =
        r#"until [ $(ps -o pgid= -p $$) = $(ps -o tpgid= -p $$) ]; do sleep 0.01; done; echo in front"#;
    session.line(&format!("ticketing lock k -- sh -c '{look}'"));
    session.expect("in front");
    session.expect_code(0);
}

#[test]
fn the_command_finds_no_signal_blocked() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("ticketing lock k -- grep SigBlk /proc/self/status");
    session.expect("SigBlk:\t0000000000000000");
    session.expect_code(0);
}

#[test]
fn ctrl_c_reaches_the_command() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("ticketing lock k -- sh -c 'echo ready; exec sleep 1000'");
    session.expect("ready");
    session.keys(CTRL_C);
    session.expect_code(130);
    session.line("ticketing lock k --wait 0 -- true");
    session.expect_code(0);
}

#[test]
fn ctrl_c_ends_a_script_around_the_lock_too() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("sh -c 'ticketing lock k -- sh -c \"echo ready; exec sleep 1000\"; echo went-on'");
    session.expect("ready");
    session.keys(CTRL_C);
    session.expect_code(130);
    assert!(!session.screen.lock().unwrap().contains("went-on"));
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let server = Server::start(&[]);
    let command = format!("ticketing lock k -- {ASK}");
    // The terminal is lent at once here, and on demand there.
    let in_a_script = format!("sh -c \"{}; :\"", command.replace('$', "\\$"));
    for line in [command, in_a_script] {
        let mut session = Session::start(&server);
        session.line(&line);
        session.expect("ready");
        session.keys(CTRL_Z);
        session.expect("Stopped");
        session.line("echo shell:$((40 + 2))");
        session.expect("shell:42");
        session.line("fg");
        session.line("hello");
        session.expect("got:hello");
        session.expect_code(0);
    }
}

#[test]
fn a_stopped_job_ends_with_its_terminal() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("ticketing lock k --lease 250 -- sh -c 'echo pid:$$.; read word'");
    session.expect("pid:");
    session.expect(".");
    session.keys(CTRL_Z);
    session.expect("Stopped");
    let screen = session.screen.lock().unwrap().clone();
    let pid = screen.split_once("pid:").unwrap().1.split_once('.').unwrap().0.to_owned();
    drop(session);
    common::wait_gone(&pid);
    // The lock was given back, too.
    let mut next = common::ticketing(&server);
    next.run_with(["lock", "k", "--wait", "20", "--", "true"]).expect(0);
}

#[test]
fn ctrl_z_works_where_the_command_does_not_touch_the_terminal() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    let command = "ticketing lock k -- sh -c 'echo ready >&2; while [ ! -e $0 ]; do sleep 0.01; done'";
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    // In a pipeline the terminal is not lent.
    session.line(&format!("{command} {} | cat", stop.display()));
    session.expect("ready");
    session.keys(CTRL_Z);
    session.expect("Stopped");
    session.line("bg");
    std::fs::write(&stop, "").unwrap();
    session.line("wait; echo all:done");
    session.expect("all:done");
}

#[test]
fn a_job_in_the_background_that_wants_the_terminal_stops_until_it_gets_it() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line(&format!("ticketing lock k -- {ASK} &"));
    session.expect("ready");
    // The shell tells it before its next prompt.
    wait_until("the job has stopped", PATIENCE, || {
        session.line("jobs");
        thread::sleep(std::time::Duration::from_millis(50));
        session.screen.lock().unwrap().contains("Stopped")
    });
    session.line("fg");
    session.line("hello");
    session.expect("got:hello");
}

#[test]
fn in_a_pipeline_the_terminal_is_lent_when_it_is_needed() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("ticketing lock k -- sh -c 'echo ready >&2; read word < /dev/tty; echo got:$word' | cat");
    session.expect("ready");
    session.line("hello");
    session.expect("got:hello");
    session.expect_code(0);
}

#[test]
fn a_terminal_left_in_disorder_is_set_right() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("stty echo");
    session.line(
        "ticketing lock k --lease 2 -- sh -c 'trap \"\" TERM; stty raw -echo; while :; do sleep 0.01; done'",
    );
    session.expect("about to end before the command");
    session.expect_code(106);
    session.line("stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo | tr '\\n' '+'; echo .");
    session.expect("icanon+echo+.");
}

#[test]
fn the_place_in_the_queue_is_shown() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    let mut session = Session::start(&server);
    session.line("ticketing lock k -- echo my turn");
    session.expect("waiting for \"k\": 1 of 1 in the queue");
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    session.expect("my turn");
    session.expect_code(0);
}

#[test]
fn people_at_a_terminal_get_text() {
    let server = Server::start(&[]);
    let mut session = Session::start(&server);
    session.line("ticketing acquire k");
    session.expect("release");
    session.expect("ticketing release k --token ");
    session.line("ticketing acquire k --wait 0");
    session.expect("ticketing: ");
    session.expect_code(102);
    session.line("ticketing acquire k --wait 0 --json");
    session.expect("{\"");
    session.line("ticketing ping");
    session.expect("leads");
    session.line("ticketing bench sequential --cycles 10");
    session.expect("cycles/s");
}
