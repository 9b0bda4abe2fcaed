//! `ticketing lock` passes signals on, and gives way to them while it waits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::process::Command;

use common::{Start as _, first_line, shell, state, ticketing};
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, Signal, wait_until, wire};

#[test]
fn signals_reach_the_whole_group_of_the_command() {
    let server = Server::start(&[]);
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ] {
        let both = "sh -c \"$1\" inner & sh -c \"$1\" outer; code=$?; wait; exit $code";
        expect_passed_on(&server, signal, name, both, &["inner", "outer"]);
    }
    // A shell makes what it puts into the background deaf for these.
    for (signal, name) in [(Signal::INT, "INT"), (Signal::QUIT, "QUIT")] {
        expect_passed_on(&server, signal, name, "sh -c \"$1\" outer; exit $?", &["outer"]);
    }
}

/// Each process notes the signal and ends with 9.
#[track_caller]
fn expect_passed_on(server: &Server, signal: Signal, name: &str, script: &str, processes: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let listen =
        format!("trap 'echo {name} > $0.got; exit 9' {name}; echo > $0.ready; while :; do sleep 0.01; done");
    // The shell around must survive to tell the code.
    let script = format!("trap : {name}; {script}");
    let mut command = ticketing(server);
    command.current_dir(folder.path()).args(["lock", "k", "--", "sh", "-c", &script, "sh", &listen]);
    let running = command.start();
    for who in processes {
        first_line(&folder.path().join(format!("{who}.ready")));
    }
    running.signal(signal);
    running.finish().expect(9);
    for who in processes {
        assert_eq!(first_line(&folder.path().join(format!("{who}.got"))), name, "{who}");
    }
}

#[test]
fn a_command_that_dies_of_a_passed_signal_is_told_as_shells_do() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::USR1, 138)] {
        let ready = folder.path().join(format!("ready{code}"));
        let script = format!("echo > {}; exec sleep 1000", ready.display());
        let running = ticketing(&server).args(["lock", "k", "--", "sh", "-c", &script]).start();
        first_line(&ready);
        running.signal(signal);
        running.finish().expect(code);
    }
}

#[test]
fn a_signal_ends_the_wait_and_the_place_in_the_queue() {
    let server = Server::start(&["--admin", "127.0.0.1:0"]);
    let mut holder = Raw::open(server.addr());
    let token = holder.take("k", 1, 60);
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        let mut command = ticketing(&server);
        command.args(["lock", "k", "--wait", "60", "--", "touch"]).arg(&ran);
        let waiting = command.start();
        wait_until_queued(&mut holder);
        waiting.signal(signal);
        let run = waiting.finish().expect(code);
        assert!(run.stderr.contains("the wait for \"k\""), "{run:?}");
        assert!(!ran.exists());
    }
    // Nobody is left in the queue to be handed the lock.
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    ticketing(&server).run_with(["lock", "k", "--wait", "0", "--", "true"]).expect(0);
}

/// Waits until somebody waits for "k".
fn wait_until_queued(any: &mut Raw) {
    let mut asker = Raw::open_extended(any.tcp().peer_addr().unwrap());
    wait_until("a waiter", PATIENCE, || {
        asker.send(wire::place("k", 0));
        matches!(asker.read(), Reply::Place { waiters: 1.., .. })
    });
}

#[test]
fn what_was_ignored_stays_ignored() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    // As `nohup` does it, and a shell without job control in the background.
    let script = r#"trap "" HUP INT
        exec "$TICKETING" lock k -- sh -c 'echo > ready; until [ -e stop ]; do sleep 0.01; done; exit 5'"#;
    let running = shell(&server, script).current_dir(folder.path()).start();
    first_line(&folder.path().join("ready"));
    running.signal(Signal::HUP);
    running.signal(Signal::INT);
    fs::write(folder.path().join("stop"), "").unwrap();
    running.finish().expect(5);
}

#[test]
fn the_command_finds_signals_as_if_started_directly() {
    let server = Server::start(&[]);
    let look = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let directly = Command::new(look[0]).args(&look[1..]).output().unwrap();
    let run = ticketing(&server).args(["lock", "k", "--"]).args(look).run().expect(0);
    assert_eq!(run.stdout, String::from_utf8(directly.stdout).unwrap());
}

#[test]
fn stop_and_continue_reach_the_command() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid; until [ -e stop ]; do sleep 0.01; done; exit 5";
    let running =
        ticketing(&server).current_dir(folder.path()).args(["lock", "k", "--", "sh", "-c", script]).start();
    let pid = first_line(&folder.path().join("pid"));
    running.signal(Signal::TSTP);
    wait_until("the command has stopped", PATIENCE, || state(&pid) == Some('T'));
    running.signal(Signal::CONT);
    wait_until("the command goes on", PATIENCE, || state(&pid) != Some('T'));
    fs::write(folder.path().join("stop"), "").unwrap();
    running.finish().expect(5);
}
