//! `ticketing lock`: what the command gets, and what becomes of the lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use common::{
    Misdeed, Start as _, at, bare, first_line, misbehaving, nowhere, shell, state, ticketing, wait_gone,
};
use ticketing_test_support::{Server, Signal};

#[test]
fn two_shell_scripts_take_turns() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("count"), "0\n").unwrap();
    // Reads, lets the other one run, and writes: loses additions unless it is alone.
    let script = r#"
        for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
            "$TICKETING" lock seat:12 -- sh -c '
                count=$(cat count); sleep 0.01; echo $((count + 1)) > count
                echo "$TICKETING_TOKEN" >> tokens' || exit
        done"#;
    let scripts: Vec<_> = (0..2).map(|_| shell(&server, script).current_dir(folder.path()).start()).collect();
    for script in scripts {
        script.finish().expect(0);
    }
    assert_eq!(fs::read_to_string(folder.path().join("count")).unwrap(), "30\n");
    let tokens: Vec<u64> = fs::read_to_string(folder.path().join("tokens"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(tokens.len(), 30);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn the_command_knows_what_it_holds() {
    let server = Server::start(&[]);
    let print = "echo $TICKETING_KEY $TICKETING_TOKEN $TICKETING_DOMAIN";
    let run = ticketing(&server).run_with(["lock", "seat:12", "--", "sh", "-c", print]).expect(0);
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    let [key, token, domain] = words[..] else { panic!("{run:?}") };
    assert_eq!((key, domain), ("seat:12", "00000000000000000000000000000000"));
    assert!(token.parse::<u64>().unwrap() > 0);
}

#[test]
fn a_lock_inside_another_shows_its_own() {
    let server = Server::start(&[]);
    let script = r#""$TICKETING" lock outer -- "$TICKETING" lock inner -- printenv TICKETING_KEY"#;
    assert_eq!(shell(&server, script).run().expect(0).stdout, "inner\n");
}

#[test]
fn a_domain_that_is_not_known_is_not_inherited() {
    // This server names no domain.
    let addr = misbehaving(Misdeed::GrantToAll);
    let mut command = at(addr);
    command.env("TICKETING_DOMAIN", "of another lock");
    command.run_with(["lock", "k", "--", "printenv", "TICKETING_DOMAIN"]).expect(1);
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = Server::start(&[]);
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let run = ticketing(&server).run_with(["lock", "k", "--", "sh", "-c", script]).expect(code);
        assert_eq!((&*run.stdout, &*run.stderr), ("", ""), "{script}");
    }
    // A signal that has no name.
    ticketing(&server).run_with(["lock", "k", "--", "sh", "-c", "kill -40 $$"]).expect(168);
}

#[test]
fn the_standard_streams_belong_to_the_command() {
    let server = Server::start(&[]);
    let mut command = ticketing(&server);
    command.args(["--json", "lock", "k", "--", "sh", "-c", "cat; echo oops >&2"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((&*output.stdout, &*output.stderr), (&b"through\n"[..], &b"oops\n"[..]));
}

#[test]
fn arguments_arrive_untouched() {
    let server = Server::start(&[]);
    let run = ticketing(&server)
        .run_with(["lock", "k", "--", "printf", "[%s]", "two words", "--json", "$HOME", "", "--"])
        .expect(0);
    assert_eq!(run.stdout, "[two words][--json][$HOME][][--]");
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_free_afterwards() {
    let server = Server::start(&[]);
    for script in ["exit 0", "exit 3", "kill -KILL $$"] {
        let script = format!("\"$TICKETING\" lock k --wait 0 -- true; echo $?; {script}");
        let mut command = ticketing(&server);
        command.env("TICKETING", common::TICKETING);
        assert_eq!(command.run_with(["lock", "k", "--", "sh", "-c", &script]).stdout, "102\n");
        ticketing(&server).run_with(["lock", "k", "--wait", "0", "--", "true"]).expect(0);
    }
}

#[test]
fn what_the_command_left_running_is_ended_before_the_release() {
    let server = Server::start(&[]);
    // Two in the background, of which one does not listen; their parent ends at once.
    let script = "sleep 1000 & echo $!; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &
        sleep 0.3";
    let run = ticketing(&server)
        .run_with(["lock", "k", "--grace", "0.5", "--", "sh", "-c", &format!("{{ {script}; }} 2>&-")])
        .expect(0);
    let pids: Vec<&str> = run.stdout.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "{run:?}");
    for pid in pids {
        assert_eq!(state(pid), None, "{run:?}");
    }
}

#[test]
fn what_ends_by_itself_is_left_in_peace() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    // As the `tee` behind a script: it ends when the script has, and then has something to write.
    let script = "{ cat > /dev/null; sleep 0.1; echo last; } > log 2>&1 <<end &
end
        exec true";
    ticketing(&server).current_dir(folder.path()).run_with(["lock", "k", "--", "sh", "-c", script]).expect(0);
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "last\n");
}

#[test]
fn a_daemon_that_left_the_group_outlives_the_lock() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' > log 2>&1 < /dev/null &
        until [ -s pid ]; do sleep 0.01; done";
    ticketing(&server).current_dir(folder.path()).run_with(["lock", "k", "--", "sh", "-c", script]).expect(0);
    let pid = first_line(&folder.path().join("pid"));
    assert_eq!(state(&pid), Some('S'));
    let daemon = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(daemon, Signal::KILL).unwrap();
    wait_gone(&pid);
}

#[test]
fn a_command_that_cannot_run_is_told_before_any_wait() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    fs::write(&plain, "not a program").unwrap();
    // There is no server: nothing is asked of one.
    let mut command = at(nowhere());
    let run = command.run_with(["lock", "k", "--", "no-such-command"]).expect(127);
    assert_eq!(run.stderr, "ticketing: no-such-command: command not found; nothing was locked\n");
    at(nowhere()).run_with(["lock", "k", "--", "./no/such/command"]).expect(127);
    at(nowhere()).run_with(["lock".as_ref(), "k".as_ref(), "--".as_ref(), plain.as_os_str()]).expect(126);
    at(nowhere()).run_with(["lock", "k", "--", "/"]).expect(127);
}

#[test]
fn a_command_that_turns_out_not_to_run_gives_the_lock_back() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    for (content, code) in [("#!/no/such/interpreter\n", 127), ("\x7fELF, or so it says", 126)] {
        let path = folder.path().join("command");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        ticketing(&server)
            .run_with(["lock".as_ref(), "k".as_ref(), "--".as_ref(), path.as_os_str()])
            .expect(code);
        ticketing(&server).run_with(["lock", "k", "--wait", "0", "--", "true"]).expect(0);
    }
    let path = folder.path().join("script");
    fs::write(&path, "echo ran\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let run = ticketing(&server).args(["lock", "k", "--"]).arg(&path).run().expect(126);
    assert!(run.stderr.contains("#!/bin/sh"), "{run:?}");
}

#[test]
fn a_lock_that_was_taken_away_is_told_unless_the_command_failed_anyway() {
    let server = Server::start(&[]);
    let give_away = "\"$TICKETING\" release \"$TICKETING_KEY\" --token \"$TICKETING_TOKEN\" > /dev/null";
    for (then, code) in [("exit 0", 108), ("exit 3", 3)] {
        let mut command = ticketing(&server);
        command.env("TICKETING", common::TICKETING);
        let run =
            command.run_with(["lock", "k", "--", "sh", "-c", &format!("{give_away}; {then}")]).expect(code);
        assert!(run.stderr.starts_with("ticketing: "), "{run:?}");
    }
}

#[test]
fn a_release_without_an_answer_is_told() {
    let server = Server::start(&[]);
    let kill = format!("kill -KILL {}", server.pid().as_raw_pid());
    ticketing(&server).run_with(["lock", "k", "--", "sh", "-c", &kill]).expect(109);
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    let long = "k".repeat(129);
    let marker = tempfile::tempdir().unwrap();
    let touched = marker.path().join("ran");
    for args in [
        &["k", "--lease", "0"][..],
        &["k", "--lease", "250.1"],
        &["k", "--lease", "251"],
        &["k", "--lease", "5m"],
        &["k", "--lease", "-1"],
        &["k", "--lease", "nan"],
        &["k", "--lease", ""],
        &["k", "--wait", "256"],
        &["k", "--wait", "255.1"],
        &["k", "--wait", "-1"],
        &["k", "--wait", "1e9"],
        &["k", "--wait", "soon"],
        &[""],
        &["two words"],
        &["line\n"],
        &[&long],
        &["k", "--lease", "10", "--grace", "10"],
        &["k", "--expect-domain", "zero"],
        &["k", "--token-file", "/no/such/file"],
    ] {
        let mut command = at(nowhere());
        command.arg("lock").args(args).arg("--").arg("touch").arg(&touched);
        let run = command.run().expect(64);
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{run:?}");
    }
    assert!(!touched.exists());
    at(nowhere()).run_with(["lock", "k"]).expect(64);
    at(nowhere()).run_with(["lock", "k", "--"]).expect(64);
    at(nowhere()).run_with(["lock", "k", "true"]).expect(64);
    at(nowhere()).run_with(["lock"]).expect(64);
    at(nowhere()).run_with(["lock", "k", "--token", "secret", "--", "true"]).expect(64);
    bare().run_with(["--server", "no port", "lock", "k", "--", "true"]).expect(64);
    bare().run().expect(64);
}

#[test]
fn the_edges_of_good_input_are_accepted() {
    let server = Server::start(&[]);
    for args in [["1", "0"], ["250", "255"], ["0.5", "0.1"], ["4m", "4m"], ["250s", "255s"]] {
        let [lease, wait] = args;
        ticketing(&server).run_with(["lock", "k", "--lease", lease, "--wait", wait, "--", "true"]).expect(0);
    }
}

#[test]
fn the_command_never_runs_without_a_definite_grant() {
    let marker = tempfile::tempdir().unwrap();
    let ran = marker.path().join("ran");
    for (misdeed, codes) in
        [(Misdeed::HangUp, &[105][..]), (Misdeed::StaySilent, &[105]), (Misdeed::GrantAnother, &[105])]
    {
        let mut command = at(misbehaving(misdeed));
        command.args(["lock", "k", "--wait", "1", "--", "touch"]).arg(&ran);
        let run = command.run();
        assert!(codes.contains(&run.code), "{misdeed:?}: {run:?}");
        assert!(!ran.exists(), "{misdeed:?}");
    }
    // The same command does run when the answer is a grant.
    let mut command = at(misbehaving(Misdeed::GrantToAll));
    command.args(["lock", "k", "--wait", "1", "--", "touch"]).arg(&ran);
    command.run().expect(0);
    assert!(ran.exists());
}
