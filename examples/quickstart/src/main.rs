//! Takes ten turns on the key `ledger`; start it several times at once.
//!
//! `quickstart LEDGER`, with the servers in `TICKETING_SERVERS`.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use ticketing::TicketBroker;
use ticketing_quickstart::add_line;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ledger = PathBuf::from(env::args_os().nth(1).ok_or("usage: quickstart LEDGER")?);
    let servers = env::var("TICKETING_SERVERS").unwrap_or_else(|_| "127.0.0.1:5225".to_owned());
    let (wait, lease) = (Duration::from_secs(30), Duration::from_secs(60));

    // One broker for the whole program: it connects in the background and heals by itself.
    let broker = TicketBroker::connect(servers.split(','))?;
    for _ in 0..10 {
        let ticket = broker.acquire("ledger", wait, lease).await?;
        add_line(&ledger, ticket.token(), "async")?;
        ticket.release().await?;
    }
    broker.close().await;
    Ok(())
}
