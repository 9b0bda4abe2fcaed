//! Disks that are slow: every fsync of a process is held up by strace, which tampers with
//! system calls and leaves all others alone.

use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ticketing_test_support::ServerBuilder;

/// What a program is run under.
fn tampering(by: Duration) -> Vec<String> {
    let delay = format!("inject=fsync,fdatasync,sync_file_range:delay_enter={}", by.as_micros());
    // Its own output goes nowhere. It runs beside the program, which keeps the process id.
    let words = [
        "strace",
        "-D",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync,sync_file_range",
        "-e",
    ];
    words.into_iter().map(str::to_owned).chain([delay]).collect()
}

/// Why there can be no slow disks here; `None`: there can.
#[must_use]
pub fn slow_disks_are_missing() -> Option<&'static str> {
    static MISSING: LazyLock<Option<&str>> = LazyLock::new(|| {
        let words = tampering(Duration::from_micros(1));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Err(_) => Some("the command strace is missing (Debian: apt install strace)"),
            Ok(status) if !status.success() => Some("strace may not trace anything here"),
            Ok(_) => None,
        }
    });
    *MISSING
}

/// A server each of whose fsyncs takes so much longer.
pub(crate) fn slow(server: ServerBuilder, by: Duration) -> ServerBuilder {
    let words = tampering(by);
    server.under(&words.iter().map(String::as_str).collect::<Vec<_>>())
}
