//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{duration, exit};

/// Distributed FIFO locks with fencing tokens.
///
/// Run a command while holding a lock, hold one across processes, look at the servers, measure them.
#[derive(Debug, Parser)]
#[command(name = "ticketing", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = MAIN_EXAMPLES, after_long_help = format!("{MAIN_EXAMPLES}\n\n{}", exit::table()))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MAIN_EXAMPLES: &str = "\
Examples:
  Let only one host at a time run the nightly job; the others wait up to 30 s:
    ticketing lock nightly -- /usr/local/bin/nightly.sh
  Do not wait at all, and tell \"somebody else does it\" (102) from a failure:
    ticketing lock nightly --wait 0 -- ./nightly.sh; echo $?
  See which servers can be used:
    ticketing --server lock1:5225,lock2:5225 ping

`ticketing help lock` explains the most useful one.";

/// Where the servers are and how they are spoken to.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Address of a server, host:port; repeat it or separate by commas.
    #[arg(
        long = "server",
        value_name = "ADDR",
        env = "TICKETING_SERVERS",
        value_delimiter = ',',
        default_value = "127.0.0.1:5225",
        global = true
    )]
    pub(crate) servers: Vec<String>,

    /// File whose first line is the client token that the servers ask for.
    ///
    /// Without it the environment variable TICKETING_CLIENT_TOKEN may hold the
    /// token itself. There is no flag for that: every user of a machine can read
    /// its command lines.
    #[arg(long, value_name = "FILE", env = "TICKETING_CLIENT_TOKEN_FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// Speak TLS; the server's certificate is checked against the system's authorities.
    #[arg(long, global = true)]
    pub(crate) tls: bool,

    /// Speak TLS and trust the authorities in this PEM file instead.
    #[arg(long, value_name = "FILE", env = "TICKETING_TLS_CA", global = true)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Speak TLS and expect this name in the certificate instead of the host in the address.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tls_name: Option<String>,

    /// Refuse servers of another fencing domain (32 hexadecimal digits).
    ///
    /// Tokens can only be compared within one domain. Whoever keeps the highest
    /// token that it saw should keep the domain beside it.
    #[arg(long, value_name = "DOMAIN", env = "TICKETING_EXPECT_DOMAIN", global = true)]
    pub(crate) expect_domain: Option<String>,
}

/// How results are told.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Write JSON (the default where the output is not a terminal).
    #[arg(long, global = true, conflicts_with = "human")]
    pub(crate) json: bool,

    /// Write text for people (the default on a terminal).
    #[arg(long, global = true)]
    pub(crate) human: bool,

    /// Log what the client does to stderr; -vv logs more.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Lock(Lock),
    Acquire(Acquire),
    Release(Release),
    Ping(Ping),
    Bench(Bench),
    Completions(Completions),
    Man(Man),
}

/// For which lock, how long to wait, and how long to hold it.
#[derive(Args, Debug)]
pub(crate) struct Request {
    /// Name of the lock: 1 to 128 bytes without space or line end.
    pub(crate) key: String,

    /// How long to wait for the turn: 0 (one immediate try) to 255 s.
    #[arg(long, value_name = "DURATION", default_value = "30", value_parser = duration::parse)]
    pub(crate) wait: Duration,

    /// After how long the server takes the lock back: 1 to 250 s.
    ///
    /// The safety net for a holder that dies. Make it generous: longer than the
    /// worst time that the work can take.
    #[arg(long, value_name = "DURATION", default_value = "60", value_parser = duration::parse)]
    pub(crate) lease: Duration,

    /// Give a lock back at once if less than this is left of its lease when it arrives.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) min_remaining: Option<Duration>,
}

/// Runs a command while holding a lock.
///
/// Waits for the turn, runs the command, releases the lock when it has ended,
/// and returns its exit code. The command is never started without a definite
/// grant, and is ended before its lease is: SIGTERM to its whole process group
/// --grace before the end, SIGKILL shortly before it.
#[derive(Args, Debug)]
#[command(after_help = LOCK_HELP, after_long_help = format!("{LOCK_HELP}\n\n{}", exit::table()))]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) request: Request,

    /// How long before the end of the lease the command gets SIGTERM [default: a tenth of the lease, at most 5 s].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const LOCK_HELP: &str = "\
The command finds in its environment:
  TICKETING_KEY      the name of the lock
  TICKETING_TOKEN    the fencing token of this grant: greater than all before it
  TICKETING_DOMAIN   the fencing domain within which tokens can be compared

Hand the token to whatever the lock protects and let that refuse a smaller one
than it has seen: no lock service can stop a machine that froze in the middle of
a write from finishing it a minute later.

The command runs in a process group of its own. When the command ends, what is
left of the group is ended too, and only then is the lock released; a daemon
that must outlive it has to leave the group (setsid). Should ticketing itself be
killed or stopped, the group is killed all the same.

Signals are passed on, a terminal is handed over, and the standard streams
belong to the command: ticketing writes to stderr only.

Examples:
  A deployment that only one person runs at a time:
    ticketing lock deploy --wait 2m --lease 4m -- ./deploy.sh production
  Fencing in SQL: refuse a holder that is no longer the newest:
    ticketing lock report -- sh -c 'psql -v token=$TICKETING_TOKEN -f report.sql'
  Every machine's cron starts it; one does it, the others end at once with 102:
    ticketing lock nightly --wait 0 --lease 4m -- ./nightly.sh";

/// Acquires a lock and leaves it held.
///
/// The lock belongs to nobody's process: it stays until `ticketing release`, or
/// until its lease ends. Where the work is one command, `ticketing lock` is the
/// better choice.
#[derive(Args, Debug)]
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) request: Request,

    /// Print nothing but the token.
    #[arg(long)]
    pub(crate) token_only: bool,
}

const ACQUIRE_HELP: &str = "\
In JSON, token and owner are strings: they do not fit the numbers of many readers.

Examples:
  Hold a lock over several steps of a script:
    token=$(ticketing acquire migration --lease 2m --token-only) || exit
    ./step1 && ./step2
    ticketing release migration --token \"$token\"
  See all that is known about the grant:
    ticketing --json acquire migration | jq .";

/// Releases a lock by its exact token, from anywhere.
///
/// A token that is not the current one is refused (108) and harms nobody.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  ticketing release migration --token 1929438249810722816")]
pub(crate) struct Release {
    /// Name of the lock.
    pub(crate) key: String,

    /// The fencing token under which it was granted.
    #[arg(long, value_name = "N")]
    pub(crate) token: u64,
}

/// Connects to every server and tells what it is.
///
/// Ends well if at least one of them can serve.
#[derive(Args, Debug)]
#[command(after_help = "\
The round trip is that of a request that is decided like any other: the release
of a token that was never granted. It touches no lock.

Example:
  ticketing ping --server lock1:5225,lock2:5225,lock3:5225")]
pub(crate) struct Ping {
    /// How long to try each server.
    #[arg(long, value_name = "DURATION", default_value = "5", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
}

/// Measures acquire and release, and checks that locks exclude.
///
/// Every task adds to a counter inside its lock by reading it, now and then
/// letting others run, and writing it back: if two tasks are ever inside one
/// lock, additions are lost and the run ends with 80.
#[derive(Args, Debug)]
#[command(after_help = "\
Cycle: acquire, add to the counter, release. The numbers are those of this
machine, this network and these servers together.

Examples:
  ticketing bench contended
  ticketing bench sequential --cycles 10000 --json")]
pub(crate) struct Bench {
    /// Who wants which lock.
    #[arg(value_enum, default_value_t = Workload::Contended)]
    pub(crate) workload: Workload,

    /// How many tasks acquire at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) tasks: Option<u32>,

    /// Over how many keys.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: Option<u32>,

    /// How many cycles in all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cycles: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// 64 tasks share 32 keys: every grant is a hand-off.
    Contended,
    /// 64 tasks with a key each: nobody waits for anybody.
    OwnKey,
    /// One task, one key: the latency of a single caller.
    Sequential,
}

/// Writes a completion script for a shell to stdout.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  ticketing completions bash > ~/.local/share/bash-completion/completions/ticketing")]
pub(crate) struct Completions {
    /// Which shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Writes manual pages.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ticketing man lock | man -l -
  ticketing man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The page of this command, to stdout; without it that of ticketing itself.
    #[arg(value_name = "COMMAND")]
    pub(crate) page: Option<String>,

    /// Write all pages into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub(crate) dir: Option<PathBuf>,
}
