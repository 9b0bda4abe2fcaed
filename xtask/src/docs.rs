//! Pages that are made from the code, so that they cannot go stale.

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
        cargo::output(Command::new(cargo::built(self.binary)?).args(self.args).stdin(Stdio::null()))
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
