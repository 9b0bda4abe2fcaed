//! What a restart keeps.

use ticketing_test_support::{PATIENCE, Raw, Reply, Server, ServerBuilder, wait_until};

/// One run, ended without a warning: its domain, its first and its last token.
fn run(builder: &ServerBuilder, name: &str) -> (String, u64, u64) {
    let server = builder.start();
    let mut raw = Raw::open(server.addr());
    let tokens = (0..50).map(|owner| raw.take(format!("{name}{owner}"), owner, 60)).collect::<Vec<_>>();
    assert!(tokens.is_sorted_by(|a, b| a < b));
    let domain =
        raw.greeting().split(';').find_map(|field| field.strip_prefix("domain=")).unwrap().to_owned();
    server.kill();
    (domain, tokens[0], tokens[49])
}

#[test]
fn with_a_data_directory_tokens_grow_within_one_domain() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().data_dir(&folder.path().join("data"));
    let first = run(&builder, "first");
    assert_ne!(first.0, "0".repeat(32));
    let mut last = first.2;
    for name in ["second", "third", "fourth"] {
        let (domain, next, end) = run(&builder, name);
        assert_eq!(domain, first.0);
        assert!(next > last, "token {next} after {last}");
        last = end;
    }
    let (domain, ..) = run(&Server::builder().data_dir(&folder.path().join("other")), "other");
    assert_ne!(domain, first.0, "another folder is another domain");
}

#[test]
fn without_one_they_grow_with_the_clock() {
    let (domain, _, last) = run(&Server::builder(), "k");
    assert_eq!(domain, "0".repeat(32));
    let (domain, next, _) = run(&Server::builder(), "k");
    assert_eq!(domain, "0".repeat(32));
    assert!(next > last, "token {next} after {last}");
}

#[test]
fn what_a_restart_forgets_is_said_plainly() {
    let server = Server::start(&[]);
    assert!(server.log().contains("a restart forgets who holds what"));
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data_dir(folder.path()).start();
    assert!(!server.log().contains("forgets") && server.log().contains("on disk before it is told"));
}

#[test]
fn with_a_data_directory_locks_are_held_over_a_restart_and_what_was_released_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().data_dir(folder.path());
    let server = builder.start();
    let mut raw = Raw::open(server.addr());
    let held = raw.take("held", 1, 250);
    let freed = raw.take("freed", 2, 250);
    let brief = raw.take("brief", 3, 2);
    raw.release("freed", freed);
    raw.expect(&Reply::released(freed, "freed"));
    server.kill();

    let server = builder.start();
    let mut raw = Raw::open(server.addr());
    raw.acquire("held", 4, 0, 10);
    raw.expect(&Reply::timed_out(4, "held"));
    let next = raw.take("freed", 5, 10);
    assert!(next > brief, "token {next} after {brief}");
    raw.release("held", held);
    raw.expect(&Reply::released(held, "held"));
    // Its lease begins anew with the restart, and ends.
    raw.acquire("brief", 6, 10, 10);
    raw.expect_granted("brief", 6);
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Server::builder().data_dir(folder.path());
    let server = builder.start();
    let (status, log) = builder.try_start().err().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("another") && log.contains(folder.path().to_str().unwrap()), "{log}");
    server.kill();
    drop(builder.start());
}

#[test]
fn grace_lets_old_leases_run_out() {
    let server = Server::builder().args(["--restart-grace", "2"]).admin().start();
    let mut raw = Raw::connect(server.addr());
    let nonce = raw.read_greeting();
    raw.send(format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)));
    raw.expect_error("not_active");
    wait_until("old leases have run out", PATIENCE, || server.admin_get("/readyz").0 == 200);
    let mut raw = Raw::open(server.addr());
    let token = raw.take("k", 1, 10);
    raw.release("k", token);
    raw.expect(&Reply::released(token, "k"));
}
