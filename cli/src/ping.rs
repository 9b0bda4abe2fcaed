//! `ticketing ping`: what each server is, and how far away.

use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use serde::Serialize;
use ticketing::{ConnectionStatus, ErrorKind, TicketBroker, TicketError};

use crate::args::{Connection, Ping};
use crate::exit::Exit;
use crate::failure::{self, Failure};
use crate::output::{self, Format};
use crate::runtime;

/// No token is 0, so a release of it is always answered "not held" and changes nothing.
const NEVER_GRANTED: u64 = 0;
const KEY: &str = "ticketing-ping";
const ROUND_TRIPS: usize = 5;
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
struct Server {
    address: String,
    /// Whether a session could be opened.
    open: bool,
    domain: Option<String>,
    node: Option<u64>,
    /// Null where the server did not say.
    leads: Option<bool>,
    extension: bool,
    /// The median of a few; null where nothing could be asked.
    round_trip_us: Option<u64>,
    error: Option<String>,
    #[serde(skip)]
    exit: Option<Exit>,
}

/// Tries every server at once and prints what was found; the exit code.
///
/// # Errors
/// A setting that is not valid.
pub(crate) fn run(args: &Ping, connection: &Connection, format: Format) -> Result<u8, Failure> {
    let servers = runtime()?.block_on(async {
        let mut tasks = Vec::new();
        for address in &connection.servers {
            let broker = connection.broker_for(std::slice::from_ref(address))?;
            tasks.push(tokio::spawn(examine(address.clone(), broker, args.timeout)));
        }
        let mut servers = Vec::new();
        for task in tasks {
            servers.push(task.await.map_err(|error| Failure::system("a server was not examined", error))?);
        }
        Ok::<_, Failure>(servers)
    })?;
    match format {
        Format::Human => output::result(&for_people(&servers)),
        Format::Json => output::result(&serde_json::json!({ "servers": servers }).to_string()),
    }?;
    if servers.iter().any(|server| server.round_trip_us.is_some()) {
        return Ok(0);
    }
    output::note("no server can serve");
    let exit = servers.iter().find_map(|server| server.exit).unwrap_or(Exit::NotConnected);
    Ok(exit.code())
}

async fn examine(address: String, broker: TicketBroker, timeout: Duration) -> Server {
    // A node that follows opens sessions too, but is never ready to serve.
    let failure = tokio::select! {
        ready = broker.wait_ready(timeout) => ready.err(),
        () = until_open(&broker) => None,
    };
    let connections = broker.connections();
    let status = connections.iter().find(|status| status.open).or(connections.first()).cloned();
    let mut server = Server::from_status(address, status);
    if let Some(failure) = failure {
        server.fail(&failure);
    } else if server.leads != Some(false) {
        match round_trip(&broker).await {
            Ok(time) => server.round_trip_us = u64::try_from(time.as_micros()).ok(),
            Err(failure) => server.fail(&failure),
        }
    }
    broker.close().await;
    server
}

async fn until_open(broker: &TicketBroker) {
    while !broker.connections().iter().any(|status| status.open) {
        tokio::time::sleep(LOOK).await;
    }
}

async fn round_trip(broker: &TicketBroker) -> Result<Duration, TicketError> {
    let mut times = [Duration::ZERO; ROUND_TRIPS];
    for time in &mut times {
        let start = Instant::now();
        match broker.release(KEY, NEVER_GRANTED).await {
            Err(answer) if answer.kind() == ErrorKind::NotHeld => *time = start.elapsed(),
            Err(failure) => return Err(failure),
            Ok(()) => {}
        }
    }
    times.sort_unstable();
    Ok(times[ROUND_TRIPS / 2])
}

impl Server {
    fn from_status(address: String, status: Option<ConnectionStatus>) -> Self {
        Self {
            address,
            open: status.as_ref().is_some_and(|status| status.open),
            domain: status.as_ref().and_then(|status| status.domain).map(|domain| domain.to_string()),
            node: status.as_ref().and_then(|status| status.node),
            leads: status.as_ref().and_then(|status| status.leads),
            extension: status.as_ref().is_some_and(|status| status.extension),
            round_trip_us: None,
            error: status.filter(|status| !status.open).and_then(|status| status.last_error),
            exit: None,
        }
    }

    fn fail(&mut self, failure: &TicketError) {
        self.error = Some(failure::chain(failure));
        self.exit = Some(failure.kind().into());
    }
}

fn for_people(servers: &[Server]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["server", "state", "node", "round trip", "extension", "domain"]);
    for server in servers {
        let state = match (&server.error, server.open, server.leads) {
            (Some(error), ..) => error,
            (None, false, _) => "no connection",
            (None, true, Some(true)) => "leads",
            (None, true, Some(false)) => "follows",
            (None, true, None) => "open",
        };
        table.add_row([
            server.address.clone(),
            state.to_owned(),
            server.node.map_or_else(String::new, |node| node.to_string()),
            server.round_trip_us.map_or_else(String::new, |micros| format!("{micros} µs")),
            if server.extension { "yes" } else { "no" }.to_owned(),
            server.domain.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}
