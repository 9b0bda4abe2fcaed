//! The page of the documentation that lists the settings, made from the code.

use std::fmt::Write as _;

use super::{CLIENT_TOKEN_VARIABLE, Options, PEER_SECRET_VARIABLE, options};

/// The text of `docs/settings.md`.
#[must_use]
pub fn settings_page() -> String {
    let defaults = Options::defaults().texts();
    let mut page = String::from(HEAD);
    for arg in options::command().get_arguments() {
        let (Some(long), Some(env), Some(help)) = (arg.get_long(), arg.get_env(), arg.get_help()) else {
            continue;
        };
        let default = defaults.get(arg.get_id().as_str());
        let help = help.to_string();
        let help = help.split(" [default: ").next().unwrap_or_default().replace('|', "\\|");
        let default = default.map_or_else(String::new, |default| format!("`{default}`"));
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `--{long}` | `{}` | {default} | {help} |", env.to_string_lossy());
    }
    let _ = writeln!(
        page,
        "| | `{CLIENT_TOKEN_VARIABLE}` | | The client token itself, at least 16 bytes, in place of a file |"
    );
    let _ = writeln!(
        page,
        "| | `{PEER_SECRET_VARIABLE}` | | The peer secret itself, at least 16 bytes, in place of a file |"
    );
    page
}

const HEAD: &str = "\
# Settings of ticketing-server

<!-- Made from the code: `ticketing-server docs settings > docs/settings.md`. A test compares. -->

A setting is a flag, an environment variable, or a line of the TOML file that `--config` names. The key in the
file is the flag without the two dashes (`max-held = 5000`). Where a setting is given more than once, the flag wins
over the environment, and both over the file. A key that is not in this table stops the start.

| flag | environment | default | meaning |
| --- | --- | --- | --- |
";
