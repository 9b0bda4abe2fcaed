//! `ticketing acquire` and `ticketing release`: a lock that outlives a process.

use comfy_table::{Table, presets};
use serde_json::json;
use ticketing::{AcquireOptions, Grant};

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
        let result = grant::wait_for(&broker, &args.request.key, options, &mut signals).await.map(|ticket| {
            let grant = ticket.detach();
            output::line(&match format {
                _ if args.token_only => grant.token.to_string(),
                Format::Human => for_people(&grant),
                Format::Json => for_programs(&grant),
            });
            0
        });
        grant::close(&broker, &mut signals).await;
        result
    })
}

fn for_people(grant: &Grant) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_row(["key", &grant.key]);
    table.add_row(["token", &grant.token.to_string()]);
    table.add_row(["owner", &grant.owner.to_string()]);
    table.add_row(["domain", &grant.domain.map_or("unknown".to_owned(), |domain| domain.to_string())]);
    table.add_row(["remaining", &format!("{:.1} s", grant.remaining.as_secs_f64())]);
    table.add_row(["release", &format!("ticketing release {} --token {}", grant.key, grant.token)]);
    table.trim_fmt()
}

fn for_programs(grant: &Grant) -> String {
    json!({
        "key": grant.key,
        // As text: they do not fit the numbers of many JSON readers.
        "token": grant.token.to_string(),
        "owner": grant.owner.to_string(),
        "domain": grant.domain.map(|domain| domain.to_string()),
        "remaining_ms": u64::try_from(grant.remaining.as_millis()).unwrap_or(u64::MAX),
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
