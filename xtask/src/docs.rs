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

/// Makes all that tests and pages start. Of the whole workspace, so that
/// dependencies have the same features everywhere and are built once.
pub(crate) const BUILD: [&str; 4] = ["build", "--workspace", "--bins", "--examples"];

const PAGES: &[Page] =
    &[Page { path: "docs/settings.md", binary: "ticketing-server", args: &["docs", "settings"] }];

impl Page {
    /// What the binary prints, as it was built beside this program.
    fn print(&self) -> Result<Vec<u8>> {
        let binary = env::current_exe()?.with_file_name(format!("{}{EXE_SUFFIX}", self.binary));
        cargo::output(Command::new(binary).args(self.args).stdin(Stdio::null()))
    }
}

/// Makes every page anew.
pub(crate) fn write() -> Result<()> {
    cargo::run(&mut cargo::command(BUILD))?;
    for page in PAGES {
        let path = cargo::root().join(page.path);
        fs::write(&path, page.print()?).with_context(|| format!("{} cannot be written", page.path))?;
        println!("{}", page.path);
    }
    Ok(())
}

/// Compares every page with what the binaries of the last [`BUILD`] say.
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
