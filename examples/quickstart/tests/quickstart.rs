//! The three programs at once, twice each, against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use ticketing_test_support::{Server, binary};

fn start(program: impl AsRef<OsStr>, ledger: &Path, server: &Server) -> Child {
    let ticketing = binary("ticketing-cli", "ticketing");
    let path = format!("{}:{}", ticketing.parent().unwrap().display(), env::var("PATH").unwrap());
    Command::new(program)
        .arg(ledger)
        .env("PATH", path)
        .env("TICKETING_SERVERS", server.addr().to_string())
        .spawn()
        .unwrap()
}

#[test]
fn they_take_turns() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/take-turns.sh");
    let programs =
        [env!("CARGO_BIN_EXE_quickstart"), env!("CARGO_BIN_EXE_quickstart-blocking"), script].repeat(2);
    let running: Vec<Child> = programs.iter().map(|program| start(program, &ledger, &server)).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }

    let text = fs::read_to_string(&ledger).unwrap();
    let lines: Vec<(u64, u64, &str)> = text
        .lines()
        .map(|line| {
            let [number, token, who] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            (number.parse().unwrap(), token.parse().unwrap(), who)
        })
        .collect();
    assert!(lines.iter().map(|line| line.0).eq(1..=60), "{text}");
    assert!(lines.is_sorted_by_key(|line| line.1), "{text}");
    for who in ["async", "blocking", "shell"] {
        assert_eq!(lines.iter().filter(|line| line.2 == who).count(), 20, "{who}: {text}");
    }
}
