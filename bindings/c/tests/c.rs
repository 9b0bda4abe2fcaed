//! Programs in C and C++, compiled here and run beside real servers; some of them once more under
//! valgrind and `AddressSanitizer`, which must find nothing.
//!
//! `TICKETING_C_LIBS` names the folder of the built libraries; without it they are built.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "c/documents.rs"]
mod documents;
#[path = "c/package.rs"]
mod package;
#[path = "c/table.rs"]
mod table;
#[path = "c/tool.rs"]
mod tool;

use std::process::Command;

use ticketing_test_support::{Cluster, Server};
use tool::{Check, Program, has, output, passes};

/// All that the header needs is in it, in the oldest C and the oldest C++.
#[test]
fn the_header_is_c89_and_cpp() {
    let source = tool::tests().join("header.c");
    for (compiler, language) in
        [("gcc", "-std=c89"), ("gcc", "-std=c17"), ("g++", "-std=c++98"), ("g++", "-std=c++20")]
    {
        let mut command = Command::new(compiler);
        if compiler == "g++" {
            command.args(["-x", "c++"]);
        }
        command.args([language, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
        passes(command.arg("-I").arg(tool::include()).arg(&source));
    }
}

/// Clients in other processes link by name: nothing but the interface may be seen of the library.
#[test]
fn the_library_shows_nothing_but_its_interface() {
    let mut nm = Command::new("nm");
    let symbols = output(nm.args(["-D", "--defined-only"]).arg(tool::shared_library()));
    let shown: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = std::fs::read_to_string(tool::include().join("ticketing.h")).unwrap();
    assert!(shown.len() > 20, "{shown:?}");
    for symbol in shown {
        assert!(symbol.starts_with("ticketing_"), "{symbol} is shown");
        assert!(
            header.contains(&format!(" {symbol}(")) || header.contains(&format!("*{symbol}(")),
            "{symbol}"
        );
    }
}

#[test]
fn misuse_is_a_status() {
    let server = Server::start(&[]);
    for check in Check::ALL {
        Program::new("misuse.c").check(check).run(&[&server.addr().to_string()]);
    }
}

#[test]
fn locks_keep_their_promises() {
    let server = Server::start(&[]);
    for check in Check::ALL {
        Program::new("live.c").check(check).run(&[&server.addr().to_string()]);
    }
}

#[test]
fn a_cluster_keeps_them_too() {
    let cluster = Cluster::start(3, false);
    let addresses = cluster.clients();
    let addresses: Vec<&str> = addresses.split(',').collect();
    Program::new("live.c").run(&addresses);
}

#[test]
fn a_child_of_a_fork_is_told_at_once() {
    let server = Server::start(&[]);
    Program::new("forked.c").run(&[&server.addr().to_string()]);
}

#[test]
fn e94_a_storm_of_threads_is_served() {
    let server = Server::start(&[]);
    Program::new("storm.c").run(&["256", "3", &server.addr().to_string()]);
    Program::new("storm.c").check(Check::Addresses).run(&["64", "1", &server.addr().to_string()]);
}

#[test]
fn a_storm_survives_the_death_of_its_leader() {
    let mut cluster = Cluster::start(3, false);
    let addresses = cluster.clients();
    let mut arguments = vec!["32", "8"];
    arguments.extend(addresses.split(','));
    let storm = Program::new("storm.c").start(&arguments);
    storm.wait_for("under way");
    let leader = cluster.leader();
    cluster.kill(leader);
    storm.passes();
}

#[test]
fn e92_an_exception_ends_the_process() {
    let server = Server::start(&[]);
    let (status, said) = Program::new("throwing.cpp").ends(&[&server.addr().to_string()]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}: {said}");
    assert!(said.contains("foreign exception"), "{said}");
}

/// What is missing is told, not passed over in silence.
#[test]
fn the_checkers_of_memory_are_there() {
    assert!(has("valgrind"), "valgrind is not installed");
}
