//! Flags, environment and file, and what the server says about bad ones.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use ticketing_test_support::{Raw, Server, binary};

/// Runs the binary to its end.
fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary("ticketing-server", "ticketing-server"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TICKETING_"))
    {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().copied()).output().unwrap()
}

/// What a refused start says.
fn refusal(code: i32, args: &[&str], env: &[(&str, &str)]) -> String {
    let output = run(args, env);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(lines, 1, "{text}");
    text
}

#[test]
fn help_teaches() {
    let output = run(&["--help"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["Examples:", "--client-token-file token", "127.0.0.1:5225", "TICKETING_DATA_DIR", "SIGHUP"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn the_page_of_settings_can_be_printed() {
    let output = run(&["docs", "settings"], &[]);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("| `--max-held` | `TICKETING_MAX_HELD` |"));
}

#[test]
fn without_a_token_it_stays_on_this_machine() {
    let text = refusal(2, &["--listen", "0.0.0.0:0"], &[]);
    assert!(text.contains("0.0.0.0:0") && text.contains("--insecure-no-auth"), "{text}");
}

#[test]
fn a_token_is_never_a_flag_and_never_in_a_message() {
    let text = refusal(2, &["--client-token", "flag-secret-of-many-bytes"], &[]);
    assert!(text.contains("--client-token"), "{text}");
    let text = refusal(2, &[], &[("TICKETING_CLIENT_TOKEN", "env-secret")]);
    assert!(text.contains("at least 16") && !text.contains("env-secret"), "{text}");

    let server = Server::builder().token("a secret of many bytes").start();
    let session = Raw::open_with(server.addr(), b"a secret of many bytes", true);
    assert!(!session.greeting().contains("secret"));
    assert!(!server.log().contains("a secret"), "{}", server.log());
}

#[test]
fn files_that_are_missing_are_named() {
    let text = refusal(1, &["--client-token-file", "no-such-token"], &[]);
    assert!(text.contains("no-such-token"), "{text}");
    let text = refusal(1, &["--tls-cert", "no-such-chain.pem", "--tls-key", "no-such-key.pem"], &[]);
    assert!(text.contains("no-such-chain.pem"), "{text}");
    let text = refusal(2, &["--config", "no-such-settings.toml"], &[]);
    assert!(text.contains("no-such-settings.toml"), "{text}");
}

#[test]
fn a_wrong_line_of_the_file_is_told_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.toml");
    fs::write(&file, "threads = 1\n\nmax-hold = 3\n").unwrap();
    let text = refusal(2, &["--config", file.to_str().unwrap()], &[]);
    assert!(text.contains("server.toml") && text.contains("line 3") && text.contains("max-hold"), "{text}");
}

#[test]
fn an_address_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = refusal(1, &["--listen", &address], &[]);
    assert!(text.contains("--listen") && text.contains(&address), "{text}");
    let text = refusal(1, &["--listen", "127.0.0.1:0", "--admin", &address], &[]);
    assert!(text.contains("--admin") && text.contains(&address), "{text}");
}

#[test]
fn flag_over_environment_over_file_over_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.toml");
    fs::write(&file, "max-held = 3\nmax-waiters = 3\nmax-tombstones = 3\n").unwrap();
    let server = Server::builder()
        .admin()
        .arg("--config")
        .arg(&file)
        .env("TICKETING_MAX_HELD", "4")
        .env("TICKETING_MAX_WAITERS", "4")
        .args(["--max-held", "5"])
        .start();
    let limit = |name: &str| server.metric(&format!("ticketing_{name}_max"));
    assert_eq!(limit("held_locks"), Some(5.0));
    assert_eq!(limit("waiters"), Some(4.0));
    assert_eq!(limit("tombstones"), Some(3.0));
    assert_eq!(limit("connections"), Some(10_000.0));
}

#[test]
fn the_advertised_address_is_what_clients_are_told() {
    let server = Server::start(&["--advertise", "locks.example.com:5225"]);
    let mut raw = Raw::connect(server.addr());
    assert_eq!(raw.handshake(b"", true), "locks.example.com:5225");
    assert!(raw.greeting().contains(";self=locks.example.com:5225"));

    let server = Server::start(&[]);
    let mut raw = Raw::connect(server.addr());
    assert_eq!(raw.handshake(b"", false), server.addr().to_string());
}

#[test]
fn log_lines_can_be_json() {
    let mut child = Command::new(binary("ticketing-server", "ticketing-server"))
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let listening = lines
        .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap())
        .find(|line| line["fields"]["message"] == "listening")
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for name in ["client", "admin"] {
        listening["fields"][name].as_str().unwrap().parse::<std::net::SocketAddr>().unwrap();
    }
}
