//! The whole table of scenarios, played by a program in C: once by calls that call back, once
//! by calls that block. `CONFORMANCE_ONLY=text` plays only the cases with that in their name.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use serde_json::{Value, json};
use ticketing_test_support::binary;

use crate::tool::{Program, folder, output};

/// Most of the time of a case is spent waiting.
const AT_ONCE: usize = 30;

#[test]
fn calls_that_call_back_keep_every_promise_of_the_table() {
    play_the_table("c", "start");
}

#[test]
fn calls_that_block_keep_every_promise_of_the_table() {
    play_the_table("c-blocking", "block");
}

fn play_the_table(language: &str, form: &str) {
    let server = binary("ticketing-conformance", "ticketing-scripted-server");
    let table = folder().join("../../tests/conformance/scenarios");
    let only = env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let names = output(Command::new(&server).arg("list").arg(&table));
    let names: Vec<&str> = names.lines().filter(|name| name.contains(&only)).collect();
    let program = Program::new("conformance.c");
    let runner = program.command();

    let play = |name: &str| -> Value {
        let mut scripted = Command::new(&server);
        scripted.arg("play").arg(&table).arg(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut scripted = scripted.spawn().unwrap();
        let (calls, outcomes) = (scripted.stdout.take().unwrap(), scripted.stdin.take().unwrap());
        let mut runner = Command::new(runner.get_program());
        runner.arg(form).stdin(calls).stdout(outcomes).stderr(Stdio::piped());
        let mut runner = runner.spawn().unwrap();
        let mut verdict = String::new();
        runner.stderr.take().unwrap().read_to_string(&mut verdict).unwrap();
        let ended = runner.wait().unwrap();
        let _ = (scripted.kill(), scripted.wait());
        let verdict = verdict.trim_end();
        serde_json::from_str(verdict).unwrap_or_else(
            |_| json!({ "end": "failed", "why": format!("no verdict; the runner: {ended}, {verdict}") }),
        )
    };
    let next = AtomicUsize::new(0);
    let results = Mutex::new((String::new(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = play(name);
                    let line = json!({ "case": name, "end": verdict["end"], "why": verdict["why"] });
                    let (lines, failed) = &mut *results.lock().unwrap();
                    writeln!(lines, "{line}").unwrap();
                    if verdict["end"] == "failed" {
                        failed.push(format!("{name}: {verdict:#}"));
                    }
                }
            });
        }
    });
    let (lines, failed) = results.into_inner().unwrap();
    let results = binary("ticketing-conformance", "ticketing-scripted-server");
    let results = results.ancestors().nth(2).unwrap().join("conformance");
    fs::create_dir_all(&results).unwrap();
    let results = results.join(format!("{language}.jsonl"));
    fs::write(&results, lines).unwrap();
    eprintln!("{}", output(Command::new(&server).arg("report").arg(&results)));
    assert!(!names.is_empty() && failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}
