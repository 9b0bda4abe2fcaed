//! Finds the built binaries of this workspace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;
use std::{env, fs};

/// Path of the binary `name` of the workspace package `package`, as built in
/// the profile of the running test; built now if it is missing or stale.
///
/// An environment variable of the binary's name with `_BIN` behind it, such as
/// `TICKETING_SERVER_BIN`, names another binary to use instead.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn binary(package: &str, name: &str) -> PathBuf {
    static READY: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);

    let variable = format!("{}_BIN", name.to_uppercase().replace('-', "_"));
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let mut ready = READY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(path) = ready.get(name) {
        return path.clone();
    }
    let (target_dir, profile) = place_of_this_test();
    let path = target_dir.join(&profile).join(name);
    if !is_fresh(&path) {
        build(package, name, &target_dir, &profile);
    }
    ready.insert(name.to_owned(), path.clone());
    path
}

/// Target directory and profile folder of the running executable.
fn place_of_this_test() -> (PathBuf, String) {
    let exe = env::current_exe().expect("the path of the running test");
    let folder =
        exe.ancestors().skip(1).find(|folder| !folder.ends_with("deps") && !folder.ends_with("examples"));
    if let Some(folder) = folder
        && let (Some(target_dir), Some(profile)) = (folder.parent(), folder.file_name())
        && folder.join(".fingerprint").is_dir()
    {
        return (target_dir.to_owned(), profile.to_string_lossy().into_owned());
    }
    // A documentation test runs somewhere else.
    let target_dir = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    (target_dir, "debug".to_owned())
}

/// Whether the binary is newer than every source file that cargo says it is made of.
fn is_fresh(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let (Some(built), Ok(sources)) = (modified(binary), fs::read_to_string(binary.with_extension("d")))
    else {
        return false;
    };
    let newest = sources
        .split_once(": ")
        .map_or("", |(_, files)| files)
        .split_whitespace()
        .map(|file| modified(Path::new(file)))
        // A source that is gone (or has a space in its name) makes it stale.
        .try_fold(SystemTime::UNIX_EPOCH, |newest, time| time.map(|time| newest.max(time)));
    newest.is_some_and(|newest| newest < built)
}

fn build(package: &str, name: &str, target_dir: &Path, profile: &str) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let profile = if profile == "debug" { "dev" } else { profile };
    let status = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", package, "--bin", name, "--profile", profile, "--target-dir"])
        .arg(target_dir)
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "cargo could not build {name}");
}
