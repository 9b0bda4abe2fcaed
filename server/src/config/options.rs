//! Every setting, as it is written: flag, environment variable, line of a file.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use super::command::{Command, Operation, Page};
use super::{Config, ConfigError, Secrets};

/// How long a file of settings may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any file of settings.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "ticketing-server",
    version,
    about = "The Ticketing lock server: FIFO locks with leases and fencing tokens",
    long_about = "The Ticketing lock server: FIFO locks with leases and fencing tokens.\n\n\
        With no options it serves this machine on 127.0.0.1:5225, in memory, without a token.\n\
        With --cluster it is one of 3 or 5 nodes, of which any minority may die.\n\
        Every setting is a flag, an environment variable, or a line of the file named by --config;\n\
        where one is given twice, the flag wins over the environment, and both over the file.",
    after_long_help = EXAMPLES
)]
struct CommandLine {
    /// Read settings from this TOML file; its keys are the flags without the dashes in front
    #[arg(long, env = "TICKETING_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  Try it on this machine:
    ticketing-server

  Serve a network, with a token, with TLS, and with tokens that keep growing over restarts:
    head -c 32 /dev/urandom | base64 > token
    ticketing-server --listen 0.0.0.0:5225 --client-token-file token \\
        --tls-cert chain.pem --tls-key key.pem --data-dir /var/lib/ticketing

  Try a cluster on this machine:
    ticketing-server dev

  One of three nodes of a cluster (the same line on each, but for --slot); then, once, initialise it:
    NODES=a=10.0.0.1:5235@10.0.0.1:5225,b=10.0.0.2:5235@10.0.0.2:5225,c=10.0.0.3:5235@10.0.0.3:5225
    ticketing-server --cluster $NODES --slot a --peer-secret-file secret --client-token-file token
    ticketing-server init --cluster $NODES --peer-secret-file secret

  Health checks and metrics on http://127.0.0.1:9225 (/healthz /readyz /status /metrics):
    ticketing-server --admin 127.0.0.1:9225

  Change the token without a restart: write the new token as a second line of the file,
  send SIGHUP, give the new token to every client, remove the old line, send SIGHUP again:
    kill -HUP $(pidof ticketing-server)

Signals:
  SIGTERM, SIGINT  hand leadership over, refuse new acquires, go on serving releases for a moment, then exit (0)
  SIGHUP           read the token file and the certificate again";

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Serve.
    Serve(Box<Config>),
    /// Do this and end.
    Operate(Operation),
    /// Print this page and end.
    Print(String),
}

/// Reads the command line, the environment and the file that they name.
/// `--help`, `--version` and a command line that makes no sense end the process.
///
/// # Errors
/// [`ConfigError`] says which setting is wrong and what to do about it.
pub fn invocation() -> Result<Invocation, ConfigError> {
    let matches = command().try_get_matches().unwrap_or_else(|error| name_the_variable(error).exit());
    let line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let operation = match line.command {
        Some(Command::Docs { page: Page::Settings }) => {
            return Ok(Invocation::Print(super::settings_page()));
        }
        Some(Command::Init(args)) => Some(Operation::init(args, Secrets::read())?),
        Some(Command::Status(args)) => Some(Operation::status(&args)),
        Some(Command::Replace(args)) => Some(Operation::replace(args)),
        Some(Command::Dev(args)) => Some(Operation::dev(args)),
        None => None,
    };
    if let Some(operation) = operation {
        return Ok(Invocation::Operate(operation));
    }
    let file = line.config.as_deref().map(Options::read).transpose()?.unwrap_or_default();
    let config = Config::new(line.options.or(file), Secrets::read())?;
    Ok(Invocation::Serve(Box::new(config)))
}

/// The command line's grammar, with the defaults told in its help: for manuals and completions.
#[must_use]
pub fn command() -> clap::Command {
    let defaults = Options::defaults().texts();
    CommandLine::command().mut_args(|arg| match (defaults.get(arg.get_id().as_str()), arg.get_help()) {
        (Some(default), Some(help)) => {
            let help = format!("{help} [default: {default}]");
            arg.help(help)
        }
        _ => arg,
    })
}

const NO_IP_ADDRESS: &str =
    "an IP address and a port are needed, such as 127.0.0.1:5225 or [::1]:5225; names are not resolved";

fn ip_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| NO_IP_ADDRESS)
}

/// Of a value from the environment, clap names only the flag that could have given it.
fn name_the_variable(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return error };
    let mut command = command();
    command.build();
    let argument = command.get_arguments().find(|argument| argument.to_string() == *flag);
    let variable = argument.and_then(clap::Arg::get_env).and_then(|name| name.to_str());
    if let Some(variable) = variable.filter(|name| std::env::var(name).is_ok_and(|set| set == *value)) {
        let flag = format!("{flag}', given by '{variable}");
        error.insert(ContextKind::InvalidArg, ContextValue::String(flag));
    }
    error
}

/// What is wrong with a file of settings, in words that name no type of this program.
fn in_words(error: &toml::de::Error) -> String {
    let mut text = error.to_string();
    for (typical, words) in [
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u64", "expected a whole number"),
        ("invalid socket address syntax", NO_IP_ADDRESS),
    ] {
        text = text.replace(typical, words);
    }
    let unknown = text.split_once("unknown field `").and_then(|(_, rest)| rest.split_once('`'));
    let Some((unknown, _)) = unknown else { return text };
    let meant = unknown.trim_start_matches('-').to_lowercase().replace('_', "-");
    if meant != unknown && text.contains(&format!("`{meant}`")) {
        text = text.replacen(", expected", &format!(" (did you mean `{meant}`?), expected"), 1);
    }
    text
}

/// The settings that may be given; `None`: not given.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Serve clients on this address, `IP:PORT`; port 0 takes a free one, and the log line `listening` tells it
    #[arg(long, env = "TICKETING_LISTEN", value_name = "ADDR", value_parser = ip_address)]
    pub listen: Option<SocketAddr>,
    /// The address at which clients reach this server, `HOST:PORT`, as it names itself to them; by default
    /// the address at which they came in
    #[arg(long, env = "TICKETING_ADVERTISE", value_name = "ADDR")]
    pub advertise: Option<String>,

    /// Clients must know the token in this file: a line of at least 16 bytes; a second line is a second
    /// token, while one replaces the other
    #[arg(long, env = "TICKETING_CLIENT_TOKEN_FILE", value_name = "FILE")]
    pub client_token_file: Option<PathBuf>,
    /// Serve other machines without a token: whoever reaches the port can take and release every lock
    #[arg(long, env = "TICKETING_INSECURE_NO_AUTH", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub insecure_no_auth: Option<bool>,
    /// Speak TLS, with this certificate chain (PEM)
    #[arg(long, env = "TICKETING_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, env = "TICKETING_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Keep every grant and release in this folder, on disk before it is told, so that a restart forgets
    /// nothing; without it locks are in memory only
    #[arg(long, env = "TICKETING_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Seconds after the start in which clients are told to wait: a restart forgets who holds what, and with
    /// the longest lease in use here, no lease of the last run is still running when the first lock is given
    #[arg(long, env = "TICKETING_RESTART_GRACE", value_name = "SECS")]
    pub restart_grace: Option<u16>,

    /// Take part in a cluster of 3 or 5 nodes, the same list for each of them:
    /// `NAME=PEER_HOST:PORT@CLIENT_HOST:PORT`, separated by commas
    #[arg(long, env = "TICKETING_CLUSTER", value_name = "NODES")]
    pub cluster: Option<String>,
    /// Which of the nodes of --cluster this one is
    #[arg(long, env = "TICKETING_SLOT", value_name = "NAME")]
    pub slot: Option<String>,
    /// Answer peers on this address, `IP:PORT`, if it is not the one that stands in --cluster
    #[arg(long, env = "TICKETING_PEER_LISTEN", value_name = "ADDR", value_parser = ip_address)]
    pub peer_listen: Option<SocketAddr>,
    /// Peers prove to each other that they know the secret in this file, of at least 16 bytes: another one
    /// than the client token
    #[arg(long, env = "TICKETING_PEER_SECRET_FILE", value_name = "FILE")]
    pub peer_secret_file: Option<PathBuf>,
    /// Talk to peers over TLS with the certificate chain in this PEM file
    #[arg(long, env = "TICKETING_PEER_TLS_CERT", value_name = "FILE")]
    pub peer_tls_cert: Option<PathBuf>,
    /// The private key of --peer-tls-cert, PEM
    #[arg(long, env = "TICKETING_PEER_TLS_KEY", value_name = "FILE")]
    pub peer_tls_key: Option<PathBuf>,
    /// Peers must show a certificate of the CA in this PEM file
    #[arg(long, env = "TICKETING_PEER_TLS_CA", value_name = "FILE")]
    pub peer_tls_ca: Option<PathBuf>,
    /// A folder for a small note of the cluster that this node was in: it keeps a node that lost its memory from
    /// being initialised again by mistake
    #[arg(long, env = "TICKETING_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Initialise the cluster, once, when a server runs for every node; give it to one of them, and never to a
    /// node that comes back alone
    #[arg(long, env = "TICKETING_INIT", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub init: Option<bool>,
    /// Fencing tokens of a cluster that is initialised begin above this one, if the wall clock does not put them
    /// there
    #[arg(long, env = "TICKETING_TOKEN_FLOOR", value_name = "TOKEN")]
    pub token_floor: Option<u64>,

    /// For tests: snapshots that would take a load of hours, in seconds.
    #[arg(long, hide = true, value_name = "BYTES")]
    #[serde(skip)]
    pub log_memory: Option<usize>,

    /// Serve /healthz, /readyz, /status and /metrics over HTTP on this address, `IP:PORT`
    #[arg(long, env = "TICKETING_ADMIN", value_name = "ADDR", value_parser = ip_address)]
    pub admin: Option<SocketAddr>,
    /// Let --admin be an address that other machines reach; its pages need no token
    #[arg(long, env = "TICKETING_ADMIN_ALLOW_REMOTE", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub admin_allow_remote: Option<bool>,
    /// How log lines on standard error are written: text or json
    #[arg(
        long,
        env = "TICKETING_LOG_FORMAT",
        value_enum,
        hide_possible_values = true,
        value_name = "FORMAT"
    )]
    pub log_format: Option<LogFormat>,
    /// The least important lines that are logged: error, warn, info, debug or trace
    #[arg(long, env = "TICKETING_LOG_LEVEL", value_enum, hide_possible_values = true, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// Threads that serve connections, at most 1024; one is best until TLS or the number of clients fills it
    #[arg(long, env = "TICKETING_THREADS", value_name = "N")]
    pub threads: Option<u16>,

    /// Connections at one time; one more is told `too_many_connections`
    #[arg(long, env = "TICKETING_MAX_CONNECTIONS", value_name = "N")]
    pub max_connections: Option<u32>,
    /// Connections at one time that have not authenticated yet; one more is told `too_many_connections`
    #[arg(long, env = "TICKETING_MAX_UNAUTHENTICATED", value_name = "N")]
    pub max_unauthenticated: Option<u32>,
    /// Requests of one connection without an answer; an acquire above is answered busy, for others the server
    /// stops reading that connection until it is below
    #[arg(long, env = "TICKETING_MAX_IN_FLIGHT", value_name = "N")]
    pub max_in_flight: Option<u32>,
    /// Waiting acquires of one key; one more is answered busy
    #[arg(long, env = "TICKETING_MAX_WAITERS_PER_KEY", value_name = "N")]
    pub max_waiters_per_key: Option<u32>,
    /// Waiting acquires of all keys; one more is answered busy
    #[arg(long, env = "TICKETING_MAX_WAITERS", value_name = "N")]
    pub max_waiters: Option<u32>,
    /// Locks held at one time; an acquire of one more is answered busy
    #[arg(long, env = "TICKETING_MAX_HELD", value_name = "N")]
    pub max_held: Option<u32>,
    /// Verified refusals that are remembered, each for 10 minutes; a connection may ask for a quarter of
    /// what is free, and a verify that needs one more ends it as `overloaded`
    #[arg(long, env = "TICKETING_MAX_TOMBSTONES", value_name = "N")]
    pub max_tombstones: Option<u32>,
    /// Bytes of answers that a connection may leave unread; above, the server stops reading it, and after
    /// 5 seconds without progress ends it as `overloaded`
    #[arg(long, env = "TICKETING_MAX_UNREAD_OUTPUT", value_name = "BYTES")]
    pub max_unread_output: Option<u32>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important lines that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What stops the server or a part of it.
    Error,
    /// What an operator should look at.
    Warn,
    /// Start, stop and what changes the server.
    Info,
    /// Every connection.
    Debug,
    /// Everything.
    Trace,
}

impl Options {
    /// The values that hold where nothing is given.
    #[must_use]
    pub fn defaults() -> Self {
        let engine = ticketing_engine::Limits::default();
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], ticketing_protocol::limits::DEFAULT_PORT))),
            insecure_no_auth: Some(false),
            restart_grace: Some(0),
            init: Some(false),
            token_floor: Some(0),
            admin_allow_remote: Some(false),
            log_format: Some(LogFormat::Text),
            log_level: Some(LogLevel::Info),
            threads: Some(1),
            max_connections: Some(10_000),
            max_unauthenticated: Some(1_024),
            max_in_flight: Some(engine.in_flight_per_connection),
            max_waiters_per_key: Some(engine.waiters_per_key),
            max_waiters: Some(engine.waiters),
            max_held: Some(engine.held),
            max_tombstones: Some(engine.tombstones),
            max_unread_output: Some(1024 * 1024),
            ..Self::default()
        }
    }

    /// Reads a file of settings, which may be a pipe. Whoever writes to it has five seconds.
    ///
    /// # Errors
    /// [`ConfigError::File`] with the name of the file and, where it can be read, the line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError::File { path: path.to_owned(), problem };
        let (tell, told) = std::sync::mpsc::channel();
        let file = path.to_owned();
        // A pipe to which nobody writes keeps its thread, and not the server.
        let reader = std::thread::Builder::new().spawn(move || {
            let mut text = String::new();
            let read = File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
            // Nobody may be waiting any more.
            let _ = tell.send(read.map(|_| text));
        });
        reader.map_err(|error| wrong(error.to_string()))?;
        let read = told.recv_timeout(PATIENCE);
        match read {
            Err(_) => Err(wrong(format!(
                "it cannot be read: nothing came of it in {PATIENCE:?} (is it a pipe to which nobody writes?)"
            ))),
            Ok(Err(error)) => Err(wrong(error.to_string())),
            Ok(Ok(text)) if text.len() as u64 == MAX_FILE_BYTES => Err(wrong("it is too long".to_owned())),
            Ok(Ok(text)) => toml::from_str(&text).map_err(|error| wrong(in_words(&error))),
        }
    }

    /// These settings, and those of `lower` where none is given here.
    #[must_use]
    pub fn or(self, lower: Self) -> Self {
        Self {
            listen: self.listen.or(lower.listen),
            advertise: self.advertise.or(lower.advertise),
            client_token_file: self.client_token_file.or(lower.client_token_file),
            insecure_no_auth: self.insecure_no_auth.or(lower.insecure_no_auth),
            tls_cert: self.tls_cert.or(lower.tls_cert),
            tls_key: self.tls_key.or(lower.tls_key),
            data_dir: self.data_dir.or(lower.data_dir),
            restart_grace: self.restart_grace.or(lower.restart_grace),
            cluster: self.cluster.or(lower.cluster),
            slot: self.slot.or(lower.slot),
            peer_listen: self.peer_listen.or(lower.peer_listen),
            peer_secret_file: self.peer_secret_file.or(lower.peer_secret_file),
            peer_tls_cert: self.peer_tls_cert.or(lower.peer_tls_cert),
            peer_tls_key: self.peer_tls_key.or(lower.peer_tls_key),
            peer_tls_ca: self.peer_tls_ca.or(lower.peer_tls_ca),
            state_dir: self.state_dir.or(lower.state_dir),
            init: self.init.or(lower.init),
            token_floor: self.token_floor.or(lower.token_floor),
            log_memory: self.log_memory.or(lower.log_memory),
            admin: self.admin.or(lower.admin),
            admin_allow_remote: self.admin_allow_remote.or(lower.admin_allow_remote),
            log_format: self.log_format.or(lower.log_format),
            log_level: self.log_level.or(lower.log_level),
            threads: self.threads.or(lower.threads),
            max_connections: self.max_connections.or(lower.max_connections),
            max_unauthenticated: self.max_unauthenticated.or(lower.max_unauthenticated),
            max_in_flight: self.max_in_flight.or(lower.max_in_flight),
            max_waiters_per_key: self.max_waiters_per_key.or(lower.max_waiters_per_key),
            max_waiters: self.max_waiters.or(lower.max_waiters),
            max_held: self.max_held.or(lower.max_held),
            max_tombstones: self.max_tombstones.or(lower.max_tombstones),
            max_unread_output: self.max_unread_output.or(lower.max_unread_output),
        }
    }

    /// The settings that are given, by the name of their field, as a user would write them.
    pub(super) fn texts(&self) -> std::collections::BTreeMap<String, String> {
        let table = toml::Table::try_from(self).unwrap_or_default();
        let text = |value: toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.into_iter().map(|(name, value)| (name.replace('-', "_"), text(value))).collect()
    }
}
