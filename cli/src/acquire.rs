//! `ticketing acquire` and `ticketing release`: a lock that outlives a process.

use std::borrow::Cow;

use comfy_table::{Table, presets};
use serde_json::json;
use ticketing::{AcquireOptions, Ticket};

use crate::args::{Acquire, Connection, Release};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::signals::Signals;
use crate::{grant, runtime};

/// Acquires a lock, prints what was granted and leaves it held; the exit code.
///
/// # Errors
/// Whatever is not a definite grant.
pub(crate) fn acquire(args: &Acquire, connection: &Connection, format: Format) -> Result<u8, Failure> {
    runtime()?.block_on(async {
        let broker = connection.broker()?;
        let mut signals =
            Signals::take().map_err(|error| Failure::system("signals cannot be handled", error))?;
        let options = AcquireOptions {
            wait: args.request.wait,
            lease: args.request.lease,
            min_remaining: args.request.min_remaining,
        };
        let result = match grant::wait_for(&broker, &args.request.key, options, &mut signals).await {
            Ok(ticket) => hand_over(ticket, args.token_only, format).await,
            Err(failure) => Err(failure),
        };
        grant::close(&broker, &mut signals).await;
        result
    })
}

/// Prints what was granted. If nobody can read it, nobody could release the lock either.
async fn hand_over(ticket: Ticket, token_only: bool, format: Format) -> Result<u8, Failure> {
    let text = match format {
        _ if token_only => ticket.token().to_string(),
        Format::Human => for_people(&ticket),
        Format::Json => for_programs(&ticket),
    };
    if let Err(error) = output::try_line(&text) {
        let (key, token) = (ticket.key().to_owned(), ticket.token());
        // The failure to tell stays the news.
        let _ = ticket.release().await;
        return Err(Failure::system("the token could not be printed, so the lock was released", error)
            .about(&key, token));
    }
    let _ = ticket.detach();
    Ok(0)
}

fn for_people(ticket: &Ticket) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_row(["key", ticket.key()]);
    table.add_row(["token", &ticket.token().to_string()]);
    table.add_row(["owner", &ticket.owner().to_string()]);
    table.add_row(["domain", &ticket.domain().map_or("unknown".to_owned(), |domain| domain.to_string())]);
    table.add_row(["remaining", &format!("{:.1} s", ticket.remaining().as_secs_f64())]);
    table.add_row([
        "release",
        &format!("ticketing release {} --token {}", quoted(ticket.key()), ticket.token()),
    ]);
    table.trim_fmt()
}

/// A word as a shell takes it.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    if word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")).into() }
}

fn for_programs(ticket: &Ticket) -> String {
    json!({
        "key": ticket.key(),
        // As text: they do not fit the numbers of many JSON readers.
        "token": ticket.token().to_string(),
        "owner": ticket.owner().to_string(),
        "domain": ticket.domain().map(|domain| domain.to_string()),
        "remaining_ms": u64::try_from(ticket.remaining().as_millis()).unwrap_or(u64::MAX),
    })
    .to_string()
}

/// Releases a lock by its token; the exit code.
///
/// # Errors
/// If it is not held under it, or nobody says so.
pub(crate) fn release(args: &Release, connection: &Connection, format: Format) -> Result<u8, Failure> {
    runtime()?.block_on(async {
        let broker = connection.broker()?;
        let result = broker.release(&args.key, args.token).await;
        broker.close().await;
        result?;
        output::line(&match format {
            Format::Human => format!("released {}", args.key),
            Format::Json => {
                json!({ "released": true, "key": args.key, "token": args.token.to_string() }).to_string()
            }
        });
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("seat:12/row-a"), "seat:12/row-a");
        assert_eq!(quoted("$(reboot);"), "'$(reboot);'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
