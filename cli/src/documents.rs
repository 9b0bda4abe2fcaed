//! Completion scripts and manual pages, made from the command line's own description.

use std::fs;
use std::io::{self, ErrorKind};

use clap::CommandFactory as _;
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
    if let Some(folder) = &args.dir {
        let what = format!("--dir {}", folder.display());
        return fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .map(|()| 0)
            .map_err(|error| Failure::system(&what, error));
    }
    let mut command = Cli::command();
    command.build();
    if let Some(name) = &args.page {
        let Some(page) = command.find_subcommand(name) else {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no command {name:?}; see ticketing --help"),
            ));
        };
        command = page.clone();
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::system("the manual page", error))?;
    to_stdout(&page)
}

fn to_stdout(bytes: &[u8]) -> Result<u8, Failure> {
    match io::Write::write_all(&mut io::stdout().lock(), bytes) {
        // A reader that has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        result => result.map(|()| 0).map_err(|error| Failure::system("the standard output", error)),
    }
}
