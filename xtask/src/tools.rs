//! Programs that some tests need and Cargo does not bring.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo;
use crate::report::Report;

/// What is looked for, the Debian package that has it, and what is not tested without it.
const TOOLS: [(&str, &str, &str); 12] = [
    ("ip", "iproute2", "cut networks"),
    ("tc", "iproute2", "slow lines"),
    ("nft", "nftables", "lost packets"),
    ("strace", "strace", "slow disks"),
    (FAKETIME, "libfaketime", "wall clocks that jump"),
    ("gcc", "gcc", C),
    ("g++", "g++", C),
    ("make", "make", C),
    ("nm", "binutils", C),
    ("pkg-config", "pkg-config", C),
    ("valgrind", "valgrind", C),
    ("cmake", "cmake", C),
];

const C: &str = "the C library";

/// A library, not a program.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// Installs what is missing, where this process may; notes what stays untested.
pub(crate) fn provide(report: &mut Report) {
    if !rustix::process::geteuid().is_root() {
        report.skip(
            "tools",
            "not root: networks that are cut, disks that are full, slow or read-only are not tested",
        );
        return;
    }
    let missing = missing();
    // Nothing can be installed.
    if !missing.is_empty() && !is_there("apt-get") {
        let without: Vec<_> = missing.iter().map(|(tool, _, what)| format!("{what} ({tool})")).collect();
        report.skip("tools", &format!("not tested, for want of a program: {}", without.join(", ")));
        return;
    }
    report.step("tools", || install(&missing));
}

fn missing() -> Vec<(&'static str, &'static str, &'static str)> {
    TOOLS.into_iter().filter(|(tool, ..)| !is_there(tool)).collect()
}

fn install(tools: &[(&str, &str, &str)]) -> Result<()> {
    if tools.is_empty() {
        return Ok(());
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        apt
    };
    cargo::run(apt().args(["update", "--quiet"]))?;
    let packages = tools.iter().map(|(_, package, _)| package);
    cargo::run(apt().args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages))?;
    let missing = missing();
    ensure!(missing.is_empty(), "still missing after its package was installed: {missing:?}");
    Ok(())
}

/// Whether a program, or a library, stands where those of the system do.
pub(crate) fn is_there(tool: &str) -> bool {
    let children = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders =
        ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib"];
    folders
        .map(|folder| Path::new(folder).to_owned())
        .into_iter()
        .chain(children)
        .any(|folder| folder.join(tool).is_file())
}
