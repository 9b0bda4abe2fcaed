//! Takes ten turns on the key `ledger`, without an async runtime.
//!
//! `quickstart-blocking LEDGER`, with the servers in `TICKETING_SERVERS`.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use ticketing::blocking::TicketBroker;
use ticketing_quickstart::add_line;

fn main() -> Result<(), Box<dyn Error>> {
    let ledger = PathBuf::from(env::args_os().nth(1).ok_or("usage: quickstart-blocking LEDGER")?);
    let servers = env::var("TICKETING_SERVERS").unwrap_or_else(|_| "127.0.0.1:5225".to_owned());
    let (wait, lease) = (Duration::from_secs(30), Duration::from_secs(60));

    let broker = TicketBroker::connect(servers.split(','))?;
    for _ in 0..10 {
        let ticket = broker.acquire("ledger", wait, lease)?;
        add_line(&ledger, ticket.token(), "blocking")?;
        ticket.release()?;
    }
    broker.close();
    Ok(())
}
