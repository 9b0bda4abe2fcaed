//! `ticketing lock`: a command runs while a lock is held.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Access, access};
use ticketing::{AcquireOptions, Ticket};

use crate::args::{Connection, Lock};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::guard::Guard;
use crate::output::{self, Format};
use crate::signals::Signals;
use crate::supervise::{self, Ending, Grace};
use crate::{grant, runtime};

/// The most that is taken from a lease by default to end a command in peace.
const MOST_GRACE: Duration = Duration::from_secs(5);

/// Runs it; the exit code.
pub(crate) fn run(args: &Lock, connection: &Connection, format: Format) -> u8 {
    let result = runtime().and_then(|runtime| runtime.block_on(lock(args, connection)));
    result.unwrap_or_else(|failure| {
        failure.report_aside(format);
        failure.code
    })
}

async fn lock(args: &Lock, connection: &Connection) -> Result<u8, Failure> {
    let grace = Grace::new(args.grace.unwrap_or_else(|| (args.request.lease / 10).min(MOST_GRACE)));
    if args.grace.is_some() && grace.least_lease() >= args.request.lease {
        return Err(Failure::new(Exit::Usage, "--grace leaves nothing of the --lease for the command"));
    }
    // A typing error should show before the wait and not after it.
    let mut command = find(&args.command)?;

    let broker = connection.broker()?;
    let mut signals =
        Signals::take().map_err(|error| Failure::system("signals cannot be passed on", error))?;
    let mut guard = Guard::start().map_err(|error| Failure::system("no guard could be started", error))?;

    let options = AcquireOptions {
        wait: args.request.wait,
        lease: args.request.lease,
        min_remaining: Some(args.request.min_remaining.unwrap_or_default().max(grace.least_lease())),
    };
    let key = &args.request.key;
    let result = match grant::wait_for(&broker, key, options, &mut signals).await {
        Ok(ticket) => {
            export(&ticket, &mut command);
            let ending = supervise::run(command, &ticket, grace, &mut signals, &mut guard).await;
            conclude(ending, ticket).await
        }
        Err(failure) => Err(failure),
    };
    guard.dismiss();
    grant::close(&broker, &mut signals).await;
    result
}

/// Finds the command as a shell would, and says at once what a shell would say.
fn find(words: &[OsString]) -> Result<Command, Failure> {
    let Some((name, arguments)) = words.split_first() else {
        return Err(Failure::new(Exit::Usage, "no command is given"));
    };
    let is_file = |path: &Path| path.is_file();
    let may_run = |path: &Path| is_file(path) && access(path, Access::EXEC_OK).is_ok();
    let candidates = candidates(name);
    if !candidates.iter().any(|path| may_run(path)) {
        let name = Path::new(name).display();
        return Err(if candidates.iter().any(|path| is_file(path)) {
            Failure::new(Exit::NotExecutable, format!("{name}: it may not be executed; nothing was locked"))
        } else {
            Failure::new(Exit::NotFound, format!("{name}: command not found; nothing was locked"))
        });
    }
    let mut command = Command::new(name);
    command.args(arguments);
    Ok(command)
}

fn candidates(name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

/// Tells the command what it holds, and nothing of a lock around this one.
fn export(ticket: &Ticket, command: &mut Command) {
    command.env("TICKETING_KEY", ticket.key()).env("TICKETING_TOKEN", ticket.token().to_string());
    match ticket.domain() {
        Some(domain) => command.env("TICKETING_DOMAIN", domain.to_string()),
        None => command.env_remove("TICKETING_DOMAIN"),
    };
}

/// Releases, and joins what the command said with what the release said.
async fn conclude(ending: Result<Ending, Failure>, ticket: Ticket) -> Result<u8, Failure> {
    let (key, token) = (ticket.key().to_owned(), ticket.token());
    let released = if matches!(ending, Ok(Ending::Alive)) {
        // It may still be at work, so only its lease may give the lock to another.
        let _ = ticket.detach();
        Ok(())
    } else {
        ticket.release().await.map_err(Failure::from)
    };
    match ending {
        Ok(Ending::Exited(0)) => released.map(|()| 0),
        Ok(Ending::Exited(code)) => {
            // The command's own failure is the news; this is the footnote.
            if let Err(failure) = released {
                output::note(failure.message());
            }
            Ok(code)
        }
        Ok(Ending::Lost) => Err(Failure::new(
            Exit::Lost,
            format!("the lease of {key:?} was about to end before the command, which was ended; ask for a longer --lease"),
        )
        .about(&key, token)),
        Ok(Ending::Alive) => Err(Failure::new(
            Exit::Lost,
            format!("the command could not be ended; {key:?} stays locked until its lease ends, and the command may go on"),
        )
        .about(&key, token)),
        Err(failure) => Err(failure.about(&key, token)),
    }
}
