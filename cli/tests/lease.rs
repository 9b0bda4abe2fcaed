//! Whatever happens, the command has ended before somebody else gets its lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Start as _, first_line, state, ticketing, wait_gone};
use tempfile::TempDir;
use ticketing_test_support::{Server, Signal};

/// Two processes that end by SIGKILL only, and write down their numbers.
const STUBBORN: &str = "trap '' TERM INT HUP
    sh -c 'echo $$ > inner; while :; do sleep 0.01; done' &
    echo $$ > outer; while :; do sleep 0.01; done";

/// Prints which of the two still run.
const LOOK: &str = "for who in inner outer; do
        pid=$(cat $who); if grep -q '^State:[[:space:]]*[RSDTt]' /proc/$pid/status 2>/dev/null; then echo $who; fi
    done";

fn stubborn(server: &Server, folder: &TempDir, lease: &str) -> common::Running {
    let mut command = ticketing(server);
    // SIGKILL comes 0.4 s before the end, which is time enough to die also on a busy machine.
    command.current_dir(folder).args(["lock", "k", "--lease", lease, "--grace", "2"]);
    command.args(["--", "sh", "-c", STUBBORN]);
    let running = command.start();
    pids(folder);
    running
}

fn pids(folder: &TempDir) -> [String; 2] {
    ["inner", "outer"].map(|who| first_line(&folder.path().join(who)))
}

/// What the next holder of the lock sees of the one before.
fn survivors(server: &Server, folder: &TempDir) -> String {
    let mut command = ticketing(server);
    command.current_dir(folder);
    command.run_with(["lock", "k", "--wait", "30", "--", "sh", "-c", LOOK]).expect(0).stdout
}

#[test]
fn at_the_end_of_the_lease_the_whole_group_ends() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let running = stubborn(&server, &folder, "5");
    assert_eq!(survivors(&server, &folder), "");
    let run = running.finish().expect(106);
    assert!(run.stderr.contains("ask for a longer --lease"), "{run:?}");
}

#[test]
fn the_command_may_end_in_peace() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'echo tidy > tidy; exit 0' TERM; while :; do sleep 0.01; done";
    let mut command = ticketing(&server);
    command.current_dir(folder.path());
    // Lost all the same: it was not done.
    let run =
        command.run_with(["lock", "k", "--lease", "4", "--grace", "3", "--", "sh", "-c", script]).expect(106);
    assert_eq!(fs::read_to_string(folder.path().join("tidy")).unwrap(), "tidy\n");
    assert!(run.took < Duration::from_secs(4), "{run:?}");
    // And the lock is free at once, not when its lease ends.
    ticketing(&server).run_with(["lock", "k", "--wait", "0", "--", "true"]).expect(0);
}

#[test]
fn a_stopped_command_ends_too() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $$ > inner; echo $$ > outer; kill -STOP $$";
    let mut command = ticketing(&server);
    command.current_dir(folder.path()).args(["lock", "k", "--lease", "5", "--grace", "2"]);
    command.args(["--", "sh", "-c", script]);
    let running = command.start();
    pids(&folder);
    assert_eq!(survivors(&server, &folder), "");
    running.finish().expect(106);
}

#[test]
fn when_ticketing_is_killed_the_whole_group_ends_at_once() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let running = stubborn(&server, &folder, "250");
    running.signal(Signal::KILL);
    for pid in pids(&folder) {
        wait_gone(&pid);
    }
    running.finish().expect(-9);
}

#[test]
fn when_ticketing_is_stopped_the_whole_group_ends_with_the_lease() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let running = stubborn(&server, &folder, "5");
    running.signal(Signal::STOP);
    assert_eq!(survivors(&server, &folder), "");
    running.signal(Signal::CONT);
    // That the guard has killed the command is the same news.
    running.finish().expect(106);
}

#[test]
fn when_ticketing_is_killed_while_it_waits_nothing_ever_runs() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let holder = {
        let mut command = ticketing(&server);
        command.current_dir(folder.path());
        command.args(["lock", "k", "--", "sh", "-c", "echo > held; until [ -e stop ]; do sleep 0.01; done"]);
        command.start()
    };
    first_line(&folder.path().join("held"));
    let mut command = ticketing(&server);
    command.current_dir(folder.path()).args(["lock", "k", "--", "touch", "ran"]);
    let waiting = command.start();
    let guard = guard_of(&waiting);
    waiting.signal(Signal::KILL);
    waiting.finish().expect(-9);
    wait_gone(&guard);
    fs::write(folder.path().join("stop"), "").unwrap();
    holder.finish().expect(0);
    ticketing(&server).run_with(["lock", "k", "--wait", "20", "--", "true"]).expect(0);
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn the_guard_goes_when_the_command_has_ended() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut command = ticketing(&server);
    command.current_dir(folder.path());
    command.args(["lock", "k", "--", "sh", "-c", "echo > held; until [ -e stop ]; do sleep 0.01; done"]);
    let running = command.start();
    first_line(&folder.path().join("held"));
    let guard = guard_of(&running);
    let environment = fs::read(Path::new("/proc").join(&guard).join("environ")).unwrap();
    assert_eq!(String::from_utf8_lossy(&environment), "");
    fs::write(folder.path().join("stop"), "").unwrap();
    running.finish().expect(0);
    assert_eq!(state(&guard), None);
}

/// The process id of the guard of a running `ticketing lock`.
fn guard_of(running: &common::Running) -> String {
    let parent = running.pid().as_raw_pid().to_string();
    let mut found = String::new();
    ticketing_test_support::wait_until("a guard", ticketing_test_support::PATIENCE, || {
        let output = Command::new("pgrep").args(["-P", &parent, "-f", "__guard"]).output().unwrap();
        found = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        !found.is_empty()
    });
    found
}
