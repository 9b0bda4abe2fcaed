//! Completion scripts and manual pages, made from the command line's own description.

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::{fs, iter};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::{self, Cli, Completions};
use crate::exit::Exit;
use crate::failure::Failure;

/// Writes a completion script; the exit code.
///
/// # Errors
/// If the output does not take it.
pub(crate) fn completions(args: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ticketing", &mut script);
    to_stdout(&script)
}

/// Writes manual pages; the exit code.
///
/// # Errors
/// An unknown page, or a place that cannot be written.
pub(crate) fn man(args: &args::Man) -> Result<u8, Failure> {
    let mut command = Cli::command();
    command.build();
    if let Some(folder) = &args.dir {
        let what = format!("--dir {}", folder.display());
        write_all(&command, folder).map_err(|error| Failure::system(&what, error))?;
        return Ok(0);
    }
    if let Some(name) = &args.page {
        let Some(page) = command.find_subcommand(name) else {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no command {name:?}; see ticketing --help"),
            ));
        };
        command = page.clone();
    }
    let mut text = Vec::new();
    page(command).render(&mut text).map_err(|error| Failure::system("the manual page", error))?;
    to_stdout(&text)
}

/// Every page says whose it is: of its own accord that of `lock` would say "lock".
/// The usage is that of `--help`, which tells the values and the `--` before a command.
fn page(mut command: Command) -> Man {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let command = command.override_usage(usage);
    Man::new(command).source(concat!("ticketing ", env!("CARGO_PKG_VERSION"))).manual("Ticketing")
}

fn write_all(command: &Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let others = command.get_subcommands().filter(|command| command.get_name() != "help");
    for command in iter::once(command).chain(others) {
        let page = page(command.clone());
        let mut text = Vec::new();
        page.render(&mut text)?;
        fs::write(folder.join(page.get_filename()), text)?;
    }
    Ok(())
}

fn to_stdout(bytes: &[u8]) -> Result<u8, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // A reader that has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        result => result.map(|()| 0).map_err(|error| Failure::system("the standard output", error)),
    }
}
