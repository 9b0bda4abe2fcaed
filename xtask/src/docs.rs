//! Pages that are made from the code, so that they cannot go stale.

use std::env::{self, consts::EXE_SUFFIX};
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cargo;

/// A page of `docs/`, and the binary that prints it.
struct Page {
    path: &'static str,
    binary: &'static str,
    args: &'static [&'static str],
}

const PAGES: &[Page] =
    &[Page { path: "docs/settings.md", binary: "ticketing-server", args: &["docs", "settings"] }];

impl Page {
    fn print(&self) -> Result<Vec<u8>> {
        // Of the whole workspace, so that dependencies keep the features with
        // which everything else was built.
        cargo::run(&mut cargo::command(["build", "--quiet", "--workspace", "--bin", self.binary]))?;
        let built = env::current_exe()?.with_file_name(format!("{}{EXE_SUFFIX}", self.binary));
        cargo::output(Command::new(built).args(self.args).stdin(Stdio::null()))
    }
}

/// Makes every page anew.
pub(crate) fn write() -> Result<()> {
    for page in PAGES {
        let path = cargo::root().join(page.path);
        fs::write(&path, page.print()?).with_context(|| format!("{} cannot be written", page.path))?;
        println!("{}", page.path);
    }
    Ok(())
}

/// Compares every page with what the code says now.
pub(crate) fn compare() -> Result<()> {
    let mut stale = Vec::new();
    for page in PAGES {
        let path = cargo::root().join(page.path);
        let committed = fs::read(&path).with_context(|| format!("{} cannot be read", page.path))?;
        if committed != page.print()? {
            stale.push(page.path);
        }
    }
    if !stale.is_empty() {
        bail!("stale: {}; `cargo xtask docs` makes them anew", stale.join(", "));
    }
    Ok(())
}
