//! The fuzz targets of the wire protocol.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::cargo;

const TARGETS: [&str; 3] = ["decode_client", "decode_server", "handshake"];

/// Runs every target for `secs` seconds, from the seeds and from what earlier runs found.
pub(crate) fn run(secs: u32) -> Result<()> {
    ensure!(cargo::has("fuzz"), "cargo-fuzz is not installed (cargo install cargo-fuzz)");
    for target in TARGETS {
        println!("\n==> {target}, {secs} s");
        let corpus = format!("fuzz/corpus/{target}");
        let folder = cargo::root().join("protocol").join(&corpus);
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let seeds = format!("fuzz/seeds/{target}");
        let time = format!("-max_total_time={secs}");
        let mut fuzz = cargo::command(["fuzz", "run", target, &corpus, &seeds, "--", &time]);
        // The sanitizers' flags are open to nightly alone, or to whoever says so.
        cargo::run(fuzz.current_dir(cargo::root().join("protocol")).env("RUSTC_BOOTSTRAP", "1"))?;
    }
    Ok(())
}
