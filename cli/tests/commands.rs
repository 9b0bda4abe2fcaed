//! The other commands: what they print and for whom.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;

use common::{Misdeed, Start as _, at, bare, misbehaving, nowhere, shell, ticketing};
use serde_json::{Value, json};
use ticketing_test_support::{PATIENCE, Raw, Reply, Server, Signal, wait_until, wire};

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_lock_is_acquired_by_one_process_and_released_by_another() {
    let server = Server::start(&[]);
    let run = ticketing(&server).run_with(["acquire", "k", "--lease", "100"]).expect(0);
    let grant = run.json();
    assert_eq!(keys(&grant), ["domain", "key", "owner", "remaining_ms", "token"]);
    assert_eq!((grant["key"].as_str(), grant["domain"].as_str()), (Some("k"), Some(&*"0".repeat(32))));
    let left = grant["remaining_ms"].as_u64().unwrap();
    assert!((90_000..=100_000).contains(&left), "{run:?}");
    assert!(grant["owner"].as_str().unwrap().parse::<u64>().is_ok());
    let token = grant["token"].as_str().unwrap();

    // The process is gone, and the lock is held.
    ticketing(&server).run_with(["acquire", "k", "--wait", "0"]).expect(102);
    let almost = (token.parse::<u64>().unwrap() - 1).to_string();
    ticketing(&server).run_with(["release", "k", "--token", &almost]).expect(108);
    ticketing(&server).run_with(["acquire", "k", "--wait", "0"]).expect(102);
    let run = ticketing(&server).run_with(["release", "k", "--token", token]).expect(0);
    assert_eq!(run.json(), json!({ "released": true, "key": "k", "token": token }));
    ticketing(&server).run_with(["release", "k", "--token", token]).expect(108);
}

#[test]
fn a_script_holds_a_lock_over_several_steps() {
    let server = Server::start(&[]);
    let script = r#"
        token=$("$TICKETING" acquire k --token-only) || exit
        "$TICKETING" acquire k --wait 0 > /dev/null 2>&1; [ $? = 102 ] || exit
        "$TICKETING" release k --token "$token" --human"#;
    assert_eq!(shell(&server, script).run().expect(0).stdout, "released k\n");
}

#[test]
fn a_grant_that_nobody_can_read_is_given_back() {
    let server = Server::start(&[]);
    let script = r#"{ "$TICKETING" acquire k "$@"; echo $? >&2; } > /dev/full"#;
    for flag in ["--json", "--human", "--token-only"] {
        let run = shell(&server, script).args(["sh", flag]).run();
        assert!(run.stderr.ends_with("\n71\n"), "{run:?}");
        ticketing(&server).run_with(["lock", "k", "--wait", "0", "--", "true"]).expect(0);
    }
}

/// Whoever throws the token away wants a lock that its lease ends. A standard output
/// that is closed cannot be told from that: before `main` it has become the null device.
#[test]
fn an_output_that_goes_nowhere_is_no_failure() {
    let server = Server::start(&[]);
    for (key, output) in [("null", "> /dev/null"), ("both", "1<> /dev/null"), ("closed", ">&-")] {
        let script = format!(r#""$TICKETING" acquire {key} --token-only {output}"#);
        shell(&server, &script).run().expect(0);
        ticketing(&server).run_with(["acquire", key, "--wait", "0"]).expect(102);
        for command in ["ping", "man", "--help"] {
            shell(&server, &format!(r#""$TICKETING" {command} {output}"#)).run().expect(0);
        }
    }
}

#[test]
fn a_token_alone_is_never_mixed_with_anything() {
    let server = Server::start(&[]);
    let run = ticketing(&server).run_with(["acquire", "k", "--token-only"]).expect(0);
    assert!(run.stdout.trim_end().parse::<u64>().is_ok(), "{run:?}");
    let run = ticketing(&server).run_with(["acquire", "k", "--wait", "0", "--token-only"]).expect(102);
    assert_eq!(run.stdout, "");
}

#[test]
fn people_get_text_on_demand() {
    let server = Server::start(&[]);
    let run = ticketing(&server).run_with(["acquire", "k", "--human"]).expect(0);
    let token = run.stdout.lines().find_map(|line| line.trim().strip_prefix("token")).unwrap().trim();
    assert!(run.stdout.contains(&format!("ticketing release k --token {token}")), "{run:?}");
    ticketing(&server).run_with(["release", "k", "--token", token]).expect(0);
}

#[test]
fn tokens_survive_readers_with_small_numbers() {
    let server = Server::start(&[]);
    let run = ticketing(&server).run_with(["acquire", "k"]).expect(0);
    let token = run.json()["token"].as_str().unwrap().parse::<u64>().unwrap();
    // So large that a double would round it: the reason why it is text.
    assert!(token > 1 << 53, "{run:?}");
}

#[test]
fn a_signal_takes_a_waiting_acquire_back() {
    let server = Server::start(&[]);
    let mut holder = Raw::open_extended(server.addr());
    holder.send(wire::acquire("k", 1, 0, 60));
    let (token, _) = holder.expect_granted_until("k", 1);
    let waiting = ticketing(&server).args(["acquire", "k", "--wait", "60"]).start();
    wait_until("a waiter", PATIENCE, || {
        holder.send(wire::place("k", 0));
        matches!(holder.read(), Reply::Place { waiters: 1, .. })
    });
    waiting.signal(Signal::INT);
    let run = waiting.finish().expect(130);
    assert_eq!(run.json()["error"], "interrupted");
    holder.release("k", token);
    holder.expect(&Reply::released(token, "k"));
    ticketing(&server).run_with(["acquire", "k", "--wait", "0"]).expect(0);
}

#[test]
fn ping_tells_each_server() {
    let server = Server::start(&[]);
    let dead = nowhere().to_string();
    let addr = server.addr().to_string();
    let run = bare().run_with(["--server", &format!("{addr},{dead}"), "ping", "--timeout", "1"]).expect(0);
    let json = run.json();
    let [alive, gone] = &json["servers"].as_array().unwrap()[..] else { panic!("{run:?}") };
    for one in [alive, gone] {
        assert_eq!(
            keys(one),
            ["address", "domain", "error", "extension", "leads", "node", "open", "round_trip_us"]
        );
    }
    assert_eq!((&alive["address"], &gone["address"]), (&json!(addr), &json!(dead)));
    assert_eq!(
        (&alive["open"], &alive["leads"], &alive["extension"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!((&alive["domain"], &alive["error"]), (&json!("0".repeat(32)), &Value::Null));
    assert!(alive["round_trip_us"].as_u64().unwrap() > 0);
    assert_eq!((&gone["open"], &gone["round_trip_us"]), (&json!(false), &Value::Null));
    let told = gone["error"].as_str().unwrap();
    assert!(told.contains("cannot connect: Connection refused"), "the cause of the cause: {told}");

    let run = bare()
        .run_with(["--server", &addr, "--server", &dead, "ping", "--timeout", "1", "--human"])
        .expect(0);
    assert!(
        run.stdout.contains("leads") && run.stdout.contains(&addr) && run.stdout.contains(&dead),
        "{run:?}"
    );
    assert!(run.stdout.contains("Connection refused"), "{run:?}");
}

#[test]
fn ping_fails_when_no_server_can_serve() {
    let run = at(nowhere()).run_with(["ping", "--timeout", "0.5"]).expect(104);
    assert_eq!(run.json()["servers"][0]["open"], false);
    let server = Server::builder().env("TICKETING_CLIENT_TOKEN", "a shared secret of the tests").start();
    ticketing(&server).run_with(["ping"]).expect(110);
}

#[test]
fn bench_counts_every_cycle() {
    let server = Server::start(&[]);
    for (args, tasks, locks) in [
        (&["contended", "--cycles", "3000"][..], 64, 32),
        (&["own-key", "--cycles", "3000"], 64, 64),
        (&["own-key", "--cycles", "3000", "--tasks", "8"], 8, 8),
        (&["sequential", "--cycles", "3000"], 1, 1),
        (&["contended", "--cycles", "3000", "--tasks", "10", "--keys", "2"], 10, 2),
    ] {
        let report = ticketing(&server).arg("bench").args(args).run().expect(0).json();
        assert_eq!(
            keys(&report),
            [
                "cycles",
                "cycles_per_sec",
                "error",
                "errors",
                "keys",
                "max_us",
                "p50_us",
                "p99_us",
                "secs",
                "tasks",
                "violations",
                "workload"
            ]
        );
        assert_eq!(report["workload"], args[0]);
        assert_eq!((&report["tasks"], &report["keys"]), (&json!(tasks), &json!(locks)));
        assert_eq!((&report["cycles"], &report["errors"]), (&json!(3000), &json!(0)));
        assert!(report["cycles_per_sec"].as_f64().unwrap() > 0.0 && report["secs"].as_f64().unwrap() > 0.0);
        assert!(report["p50_us"].as_f64().unwrap() <= report["p99_us"].as_f64().unwrap());
    }
    let run = ticketing(&server).run_with(["bench", "sequential", "--cycles", "10", "--human"]).expect(0);
    assert!(run.stdout.contains("cycles/s"), "{run:?}");
}

#[test]
fn bench_ends_at_the_first_failure() {
    let mut command = at(nowhere());
    let run = command.run_with(["bench"]).expect(104);
    assert!(run.stderr.contains("Connection refused"), "{run:?}");
    let run = at(misbehaving(Misdeed::HangUp)).run_with(["bench", "--json"]).expect(105);
    let report = run.json();
    let told = report["error"].as_str().unwrap();
    assert!(report["errors"].as_u64().unwrap() > 0 && told.contains("the server closed"), "{run:?}");
    assert!(run.stderr.contains(told), "{run:?}");
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let server = Server::start(&[]);
    for command in ["ping", "bench sequential --cycles 10", "completions bash", "man"] {
        for format in ["--json", "--human"] {
            let script = format!(r#""$TICKETING" {command} {format} > /dev/full"#);
            let run = shell(&server, &script).run().expect(71);
            assert!(run.stderr.contains("No space left"), "{run:?}");
        }
    }
    for command in ["--help", "--version", "help lock"] {
        shell(&server, &format!(r#""$TICKETING" {command} > /dev/full"#)).run().expect(71);
    }
    // What was done to a lock stands, and is told by the code.
    let script = r#"token=$("$TICKETING" acquire k --token-only) && "$TICKETING" release k --token "$token" > /dev/full"#;
    shell(&server, script).run().expect(0);
    shell(&server, r#""$TICKETING" release k --token 1 > /dev/full"#).run().expect(108);
}

#[test]
fn a_log_that_nobody_takes_is_no_failure() {
    let server = Server::start(&[]);
    let full = r#""$TICKETING" -vv $COMMAND 2> /dev/full; echo $?"#;
    // The reader is gone before the first line.
    let gone = r#"exec 3>&1; { sleep 0.2; "$TICKETING" -vv $COMMAND 2>&1; echo $? >&3; } | true"#;
    for (command, code) in [("ping", 0), ("lock k -- true", 0), ("release k --token 1", 108)] {
        for script in [full, gone] {
            let run = shell(&server, script).env("COMMAND", command).run().expect(0);
            assert!(run.stdout.ends_with(&format!("{code}\n")), "{command}: {run:?}");
        }
    }
}

#[test]
fn completions_and_manual_pages_are_there() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = bare().run_with(["completions", shell]).expect(0);
        assert!(run.stdout.contains("token-only"), "{shell}");
    }
    assert!(bare().run_with(["man"]).expect(0).stdout.contains("not_connected"));
    assert!(bare().run_with(["man", "lock"]).expect(0).stdout.contains("TICKETING_TOKEN"));
    // The usage of the help, with roff's marks left out.
    let page = bare().run_with(["man", "lock"]).expect(0).stdout.replace('\\', "");
    assert!(page.contains("lock [OPTIONS] <KEY> -- <COMMAND>"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare();
    command.arg("man").arg("--dir").arg(folder.path().join("man1"));
    command.run().expect(0);
    let mut pages: Vec<String> = fs::read_dir(folder.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort_unstable();
    for page in ["", "-acquire", "-bench", "-completions", "-lock", "-man", "-ping", "-release"] {
        let name = format!("ticketing{page}.1");
        assert!(pages.contains(&name), "{pages:?}");
        let text = fs::read_to_string(folder.path().join("man1").join(name)).unwrap();
        let header = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(header.starts_with(&format!(".TH ticketing{page} 1")), "{header}");
        assert!(header.contains("\"ticketing 0.") && header.contains("Ticketing"), "{header}");
    }
}

#[test]
fn help_is_no_error_and_a_reader_may_leave_early() {
    for args in [&["--help"][..], &["-h"], &["--version"], &["help", "lock"], &["lock", "--help"]] {
        let run = bare().run_with(args).expect(0);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{run:?}");
    }
    let server = Server::start(&[]);
    let run =
        shell(&server, r#"set -e; "$TICKETING" completions bash | true; "$TICKETING" ping | true"#).run();
    assert_eq!(run.expect(0).stderr, "");
}

#[test]
fn the_secret_is_no_flag() {
    let help = bare().run_with(["--help"]).expect(0).stdout;
    assert!(!help.contains("--token ") && !help.contains("--client-token"), "{help}");
    // Nor is it shown where the environment is.
    let mut command = bare();
    command.env("TICKETING_CLIENT_TOKEN", "hush hush");
    assert!(!command.run_with(["--help"]).stdout.contains("hush"));
}

#[test]
fn the_library_speaks_only_when_asked() {
    let server = Server::start(&[]);
    assert_eq!(ticketing(&server).run_with(["lock", "k", "--", "true"]).expect(0).stderr, "");
    assert_ne!(ticketing(&server).run_with(["-vv", "lock", "k", "--", "true"]).expect(0).stderr, "");
}
