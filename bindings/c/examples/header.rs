//! Prints ticketing.h as it is made of the source.

#![allow(clippy::print_stdout, reason = "that is its purpose")]

use std::error::Error;
use std::path::Path;

const HEAD: &str = include_str!("../package/head.h");
const MACROS: &str = include_str!("../package/macros.h");

fn main() -> Result<(), Box<dyn Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml"))?;
    config.header = Some(HEAD.trim_end().to_owned());
    config.after_includes =
        Some(format!("\n{}", MACROS.replace("@VERSION@", env!("CARGO_PKG_VERSION")).trim_end()));
    let mut header = Vec::new();
    cbindgen::generate_with_config(crate_dir, config)?.write(&mut header);
    print!("{}", tidy(&String::from_utf8(header)?));
    Ok(())
}

/// Comments as C has had them from the start, and short ones on one line.
fn tidy(header: &str) -> String {
    let mut tidied = String::new();
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() != "/*" || tidied.is_empty() {
            tidied += &match line.split_once("//") {
                Some((code, comment)) => format!("{}  /* {} */\n", code.trim_end(), comment.trim()),
                None => format!("{line}\n"),
            };
            continue;
        }
        let text: Vec<&str> = lines.by_ref().map(str::trim).take_while(|line| *line != "*/").collect();
        if let [only] = text[..] {
            tidied += &format!("{indent}/* {only} */\n");
            continue;
        }
        tidied += &format!("{indent}/*\n");
        for line in text {
            tidied += &format!("{}\n", format!("{indent} * {line}").trim_end());
        }
        tidied += &format!("{indent} */\n");
    }
    tidied
}
