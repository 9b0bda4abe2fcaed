//! Cargo, run in the root of the workspace and without input.

use std::env::{self, consts::EXE_SUFFIX};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `cargo ARGS`: the cargo that runs this program, where one does.
pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs `command` and shows what it says.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{} could not be started", name(command)))?;
    ensure!(status.success(), "{} ended with {status}", name(command));
    Ok(())
}

/// Runs `command`; what it wrote to its output. What it says besides is shown.
///
/// # Errors
/// If it cannot be started or does not succeed.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{} could not be started", name(command)))?;
    ensure!(output.status.success(), "{} ended with {}", name(command), output.status);
    Ok(output.stdout)
}

/// A binary of the workspace that was built as this program was.
///
/// # Errors
/// If it cannot be built.
pub(crate) fn built(binary: &str) -> Result<PathBuf> {
    // Of the whole workspace, so that dependencies keep the features with
    // which everything else was built.
    run(&mut command(["build", "--quiet", "--workspace", "--bin", binary]))?;
    Ok(env::current_exe()?.with_file_name(format!("{binary}{EXE_SUFFIX}")))
}

/// Whether `cargo TOOL` is there.
pub(crate) fn has(tool: &str) -> bool {
    let mut probe = command([tool, "--version"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Whether `cargo TOOL` is there, which minimal toolchains lack: if it is not,
/// after an attempt to install it as the `component` of the toolchain.
pub(crate) fn has_component(tool: &str, component: &str) -> bool {
    if has(tool) {
        return true;
    }
    let mut install = Command::new("rustup");
    install.args(["component", "add", component]).stdin(Stdio::null());
    install.status().is_ok_and(|status| status.success()) && has(tool)
}

/// The command as one would type it.
pub(crate) fn name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
