//! Every exit code, brought about by what it stands for; and the table of them in help and manual.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Misdeed, Start as _, at, bare, misbehaving, nowhere, ticketing};
use ticketing_test_support::{Authority, Raw, Server};

/// Runs `acquire` in both output formats, and checks that both tell the same.
#[track_caller]
fn expect(command: impl Fn() -> std::process::Command, args: &[&str], code: i32, name: &str) {
    let run = command().arg("--json").args(args).run().expect(code);
    let json = run.json();
    assert_eq!(
        (json["error"].as_str(), json["exit_code"].as_i64()),
        (Some(name), Some(code.into())),
        "{run:?}"
    );
    let told = format!("ticketing: {}\n", json["message"].as_str().unwrap());
    assert_eq!(run.stderr, told, "{run:?}");
    assert_eq!(told.lines().count(), 1, "{run:?}");

    let run = command().arg("--human").args(args).run().expect(code);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.starts_with("ticketing: ") && run.stderr.lines().count() == 1, "{run:?}");
}

#[test]
fn usage() {
    expect(|| at(nowhere()), &["acquire", "two words"], 64, "usage");
    expect(|| at(nowhere()), &["acquire", "k", "--lease", "251"], 64, "usage");
    expect(|| at(nowhere()), &["acquire", "k", "--token-file", "/no/such/file"], 64, "usage");
    expect(bare, &["man", "no-such-page"], 64, "usage");
}

#[test]
fn system() {
    expect(bare, &["man", "--dir", "/dev/null/here"], 71, "system");
}

#[test]
fn timeout() {
    let server = Server::start(&[]);
    let mut holder = Raw::open(server.addr());
    holder.take("k", 1, 60);
    expect(|| ticketing(&server), &["acquire", "k", "--wait", "0"], 102, "timeout");
    let run = ticketing(&server).run_with(["acquire", "k", "--wait", "1"]).expect(102);
    assert!(run.took >= Duration::from_secs(1), "{run:?}");
}

#[test]
fn busy() {
    let server = Server::start(&["--max-held", "1"]);
    let mut holder = Raw::open(server.addr());
    holder.take("k", 1, 60);
    expect(|| ticketing(&server), &["acquire", "another"], 103, "busy");
}

#[test]
fn not_connected() {
    expect(|| at(nowhere()), &["acquire", "k", "--wait", "0"], 104, "not_connected");
    let run = at(nowhere()).run_with(["acquire", "k", "--wait", "2"]).expect(104);
    assert!(run.took >= Duration::from_secs(2) && run.took < Duration::from_secs(10), "{run:?}");
}

#[test]
fn indeterminate() {
    let addr = misbehaving(Misdeed::HangUp);
    expect(|| at(addr), &["acquire", "k"], 105, "indeterminate");
}

#[test]
fn lost() {
    let server = Server::start(&[]);
    let args = ["lock", "k", "--lease", "1", "--", "sleep", "1000"];
    let run = ticketing(&server).run_with(args).expect(106);
    assert_eq!(run.stdout, "");
    let mut command = ticketing(&server);
    let run = command.arg("--json").args(args).run().expect(106);
    assert_eq!(run.stdout, "", "the standard output belongs to the command");
    let last: serde_json::Value = serde_json::from_str(run.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((last["error"].as_str(), last["key"].as_str()), (Some("lost"), Some("k")));
    assert!(last["token"].as_str().unwrap().parse::<u64>().unwrap() > 0);
}

#[test]
fn insufficient_lease() {
    let server = Server::start(&[]);
    let args = ["acquire", "k", "--lease", "10", "--min-remaining", "9.9499999"];
    expect(|| ticketing(&server), &args, 107, "insufficient_lease");
    // It was given back; and a command is not started only to be ended at once.
    let args = ["lock", "k", "--wait", "0", "--lease", "10", "--grace", "9.99", "--", "true"];
    ticketing(&server).run_with(args).expect(107);
    ticketing(&server).run_with(["acquire", "k", "--wait", "0"]).expect(0);
}

#[test]
fn not_held() {
    let server = Server::start(&[]);
    expect(|| ticketing(&server), &["release", "k", "--token", "1"], 108, "not_held");
}

#[test]
fn release_unconfirmed() {
    expect(|| at(nowhere()), &["release", "k", "--token", "1"], 109, "release_unconfirmed");
}

#[test]
fn auth() {
    let server = Server::builder().env("TICKETING_CLIENT_TOKEN", "a shared secret of the tests").start();
    expect(|| ticketing(&server), &["acquire", "k"], 110, "auth");
    let wrong = || {
        let mut command = ticketing(&server);
        command.env("TICKETING_CLIENT_TOKEN", "another secret of the tests");
        command
    };
    expect(wrong, &["acquire", "k"], 110, "auth");

    // The right one opens, from the environment and from a file, of which the file counts.
    let mut command = ticketing(&server);
    command.env("TICKETING_CLIENT_TOKEN", "a shared secret of the tests");
    command.run_with(["lock", "k", "--", "true"]).expect(0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for content in [
        "a shared secret of the tests",
        "a shared secret of the tests\n",
        "a shared secret of the tests\r\nnext\n",
    ] {
        fs::write(&file, content).unwrap();
        let mut command = wrong();
        command.arg("--token-file").arg(&file);
        let run = command.run_with(["-vv", "lock", "k", "--", "true"]).expect(0);
        assert!(!run.stderr.contains("secret"), "{run:?}");
    }
}

#[test]
fn tls() {
    let authority = Authority::new();
    let server = Server::builder().tls(&authority.issue("server", &["localhost"])).start();
    let root = authority.root_file();
    let root = root.to_str().unwrap();
    let addr = format!("localhost:{}", server.addr().port());
    let at = || {
        let mut command = bare();
        command.env("TICKETING_SERVERS", &addr);
        command
    };
    at().run_with(["--tls-ca", root, "lock", "k", "--", "true"]).expect(0);
    // Without TLS the server's greeting never comes; what may be wrong is told all the same.
    let run = at().run_with(["lock", "k", "--wait", "2", "--", "true"]).expect(104);
    assert!(run.stderr.contains("does that port want TLS?"), "{run:?}");
    // Unknown authority; right authority, other name; no such file.
    expect(at, &["--tls", "acquire", "k"], 111, "tls");
    expect(at, &["--tls-ca", root, "--tls-name", "another.example", "acquire", "k"], 111, "tls");
    expect(at, &["--tls-ca", "/no/such/file", "acquire", "k"], 111, "tls");
    let ip = || ticketing(&server);
    expect(ip, &["--tls-ca", root, "acquire", "k"], 111, "tls");
    let mut command = ip();
    command.run_with(["--tls-ca", root, "--tls-name", "localhost", "lock", "k", "--", "true"]).expect(0);
}

#[test]
fn wrong_domain() {
    let server = Server::start(&[]);
    let other = "0123456789abcdef0123456789abcdef";
    expect(|| ticketing(&server), &["--expect-domain", other, "acquire", "k"], 112, "wrong_domain");
    let zeros = "0".repeat(32);
    ticketing(&server).run_with(["--expect-domain", &zeros, "lock", "k", "--", "true"]).expect(0);
}

#[test]
fn unavailable() {
    // More at once than a client keeps pending.
    let addr = misbehaving(Misdeed::StaySilent);
    let run = at(addr).run_with(["bench", "own-key", "--tasks", "20000"]).expect(113);
    assert!(run.json()["errors"].as_u64().unwrap() > 0, "{run:?}");
}

#[test]
fn violation() {
    let addr = misbehaving(Misdeed::GrantToAll);
    let run = at(addr).run_with(["bench", "contended", "--cycles", "2000"]).expect(80);
    assert!(run.json()["violations"].as_u64().unwrap() > 0, "{run:?}");
    assert!(run.stderr.contains("two tasks were inside one lock"), "{run:?}");
}

/// Code and name of each row, out of lines that begin with a number.
fn rows<'a>(lines: impl Iterator<Item = &'a str>, ends_name: char) -> BTreeMap<u8, String> {
    lines
        .filter_map(|line| {
            let line = line.trim_start_matches(['|', ' ']);
            let digits = line.find(|c: char| !c.is_ascii_digit())?;
            let code: u8 = line[..digits].parse().ok()?;
            let rest = line[digits..].trim_start_matches(['|', ' ']);
            let name = rest.split(ends_name).next()?.trim().trim_matches('`').to_owned();
            Some((code, name))
        })
        .filter(|(code, _)| *code != 0 && *code != 128)
        .collect()
}

#[test]
fn help_and_manual_have_the_same_table() {
    let help = bare().run_with(["--help"]).expect(0).stdout;
    let (_, help) = help.split_once("Exit codes:").unwrap();
    let help = rows(help.lines(), ':');
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let manual = fs::read_to_string(manual).unwrap();
    let (_, manual) = manual.split_once("## Exit codes").unwrap();
    let manual = rows(manual.lines().filter(|line| line.starts_with("| ")), '|');
    assert_eq!(help, manual);
    assert_eq!(help.len(), 17);
}
