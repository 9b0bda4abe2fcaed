//! The commands beside serving.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ticketing_cluster::Slots;

use super::{ConfigError, Options, PeerFiles, Secrets};

/// A command beside serving.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Initialise a cluster, once, when a server runs for every node
    #[command(after_help = "\
It makes the identity of the cluster, which is the fencing domain that clients see. A start never does that by
itself. A node whose process ends forgets everything and comes back by itself as long as a majority lives; if the
memory of a majority is lost, the cluster has ended, and --new-identity begins another one in its place.")]
    Init(InitArgs),
    /// Show a server and its cluster
    Status(StatusArgs),
    /// Let a new server take a node's place while the old one still runs
    #[command(after_help = "\
Start the new server with the same --cluster, except that the node's own addresses are its new ones, within ten
minutes. It catches up, takes the node's vote, and the old server ends. Clients are told the new address.

A node that is restarted in its place needs none of this: it comes back by itself.")]
    Replace(ReplaceArgs),
    /// Run a whole cluster on this machine, to try things out
    Dev(DevArgs),
    /// Print a page of the documentation that is made from the code
    #[command(hide = true)]
    Docs {
        /// Which one.
        #[arg(value_enum)]
        page: Page,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Page {
    /// docs/settings.md
    Settings,
}

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// The nodes, as every server was given them
    #[arg(long, env = "TICKETING_CLUSTER", value_name = "NODES")]
    cluster: String,
    /// The file with the secret of the peers
    #[arg(long, env = "TICKETING_PEER_SECRET_FILE", value_name = "FILE")]
    peer_secret_file: Option<PathBuf>,
    /// Talk to the nodes over TLS with the certificate chain in this PEM file
    #[arg(long, env = "TICKETING_PEER_TLS_CERT", value_name = "FILE")]
    peer_tls_cert: Option<PathBuf>,
    /// The private key of --peer-tls-cert, PEM
    #[arg(long, env = "TICKETING_PEER_TLS_KEY", value_name = "FILE")]
    peer_tls_key: Option<PathBuf>,
    /// The nodes must show a certificate of the CA in this PEM file
    #[arg(long, env = "TICKETING_PEER_TLS_CA", value_name = "FILE")]
    peer_tls_ca: Option<PathBuf>,
    /// Begin a new cluster in place of one that has ended
    #[arg(long)]
    new_identity: bool,
    /// Fencing tokens begin above this one, if the wall clock does not put them there
    #[arg(long, env = "TICKETING_TOKEN_FLOOR", value_name = "TOKEN", default_value_t = 0)]
    token_floor: u64,
    /// Seconds to wait until a server answers for every node
    #[arg(long, value_name = "SECS", default_value_t = 30)]
    wait: u16,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The admin address of the server
    #[arg(long, env = "TICKETING_ADMIN", value_name = "ADDR")]
    admin: SocketAddr,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplaceArgs {
    /// Name of the node
    #[arg(value_name = "NAME")]
    slot: String,
    /// The admin address of any server of the cluster
    #[arg(long, env = "TICKETING_ADMIN", value_name = "ADDR")]
    admin: SocketAddr,
}

#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value = "3", value_parser = ["3", "5"])]
    nodes: String,
    /// Keep secret and logs in this directory, instead of one that goes when the cluster ends
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What is to be done, if it is not to serve.
#[derive(Debug)]
pub enum Operation {
    /// Initialise a cluster.
    Init(Box<Founding>),
    /// Show a server.
    Status {
        /// Its admin address.
        admin: SocketAddr,
        /// For programs.
        json: bool,
    },
    /// Let a place be taken over.
    Replace {
        /// The name of the place.
        slot: String,
        /// The admin address of a server.
        admin: SocketAddr,
    },
    /// Run a cluster of processes.
    Dev {
        /// How many.
        nodes: u8,
        /// Where secret and logs are kept.
        dir: Option<PathBuf>,
    },
}

/// How a cluster is to be initialised.
#[derive(Debug)]
pub struct Founding {
    /// Its nodes.
    pub slots: Slots,
    /// How to talk to them.
    pub peer: PeerFiles,
    /// Whether it follows one that has ended.
    pub new_identity: bool,
    /// Tokens begin above this one.
    pub token_floor: u64,
    /// How long to wait for the nodes.
    pub wait: Duration,
}

impl Operation {
    pub(super) fn init(args: InitArgs, secrets: Secrets) -> Result<Self, ConfigError> {
        let options = Options {
            peer_secret_file: args.peer_secret_file,
            peer_tls_cert: args.peer_tls_cert,
            peer_tls_key: args.peer_tls_key,
            peer_tls_ca: args.peer_tls_ca,
            ..Options::default()
        };
        Ok(Self::Init(Box::new(Founding {
            slots: args.cluster.parse()?,
            peer: PeerFiles::new(&options, secrets.peer_secret)?,
            new_identity: args.new_identity,
            token_floor: args.token_floor,
            wait: Duration::from_secs(args.wait.into()),
        })))
    }

    pub(super) const fn status(args: &StatusArgs) -> Self {
        Self::Status { admin: args.admin, json: args.json }
    }

    pub(super) fn replace(args: ReplaceArgs) -> Self {
        Self::Replace { slot: args.slot, admin: args.admin }
    }

    pub(super) fn dev(args: DevArgs) -> Self {
        Self::Dev { nodes: if args.nodes == "5" { 5 } else { 3 }, dir: args.dir }
    }
}
