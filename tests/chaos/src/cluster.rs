//! A cluster of server processes, a host for each.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;
use ticketing_test_support::{Server, binary, wait_until};

use crate::{Host, Network, Node};

/// The ports are the same on every host.
const CLIENT: u16 = 5225;
const PEER: u16 = 5235;

const PEER_SECRET: &str = "the secret of the peers in tests";

/// How long a cluster may take to come up, or to change in the way that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a cluster is to be set up.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    nodes: usize,
    durable: bool,
    args: Vec<String>,
}

/// What a node says of itself on its admin page.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// `leader`, `follower`, `learner`, `blank`...
    pub role: String,
    /// The term of its vote.
    #[serde(default)]
    pub term: u64,
    /// Its node id, once it has one.
    #[serde(default)]
    pub node_id: Option<u64>,
    /// The node that it takes for the leader.
    #[serde(default)]
    pub leader: Option<Leader>,
    /// The node ids of the voters.
    #[serde(default)]
    pub voters: Vec<u64>,
    /// How far it has applied the log.
    #[serde(default)]
    pub applied: Option<u64>,
    /// Of the applied state: equal on all nodes at equal `applied`.
    #[serde(default)]
    pub state_hash: Option<String>,
}

/// A leader, as another node names it.
#[derive(Clone, Debug, Deserialize)]
pub struct Leader {
    /// Its slot.
    pub slot: String,
    /// Its node id.
    pub node_id: u64,
}

/// Nodes on hosts 0, 1, 2... of a network.
#[derive(Debug)]
pub struct Cluster<'n> {
    network: &'n Network,
    nodes: Vec<Node>,
    slots: Vec<String>,
    folder: TempDir,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self { nodes: 3, durable: false, args: Vec::new() }
    }
}

impl ClusterBuilder {
    /// How many nodes; 3 by default.
    #[must_use]
    pub const fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Every node keeps its state in a folder of its own.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Adds an argument for every node.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Starts the nodes, gives the cluster its identity, and waits until it has a leader.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start<'n>(&self, network: &'n Network) -> Cluster<'n> {
        let mut cluster = self.prepare(network);
        cluster.nodes.iter_mut().for_each(Node::start);
        cluster.init();
        cluster.wait_leader();
        cluster
    }

    /// The nodes, none of which runs yet.
    ///
    /// # Panics
    /// If there is no room for their files.
    #[must_use]
    pub fn prepare<'n>(&self, network: &'n Network) -> Cluster<'n> {
        let folder = tempfile::tempdir().expect("a folder for the cluster");
        let slots: Vec<String> = ('a'..).take(self.nodes).map(String::from).collect();
        let mut cluster = Cluster { network, nodes: Vec::new(), slots, folder };
        let mut file = std::fs::File::create(cluster.secret()).expect("room for the peer secret");
        file.write_all(PEER_SECRET.as_bytes()).expect("room for the peer secret");
        for index in 0..self.nodes {
            let ip = network.ip(Host(index));
            let mut builder = Server::builder()
                .args(["--cluster", &cluster.places(Host(index)), "--slot", &cluster.slots[index]])
                .args(["--peer-listen", &SocketAddr::new(ip, PEER).to_string()])
                .arg("--peer-secret-file")
                .arg(cluster.secret())
                .arg("--insecure-no-auth")
                .args(&self.args);
            if self.durable {
                builder = builder.data_dir(&cluster.folder.path().join(&cluster.slots[index]));
            }
            let listen = SocketAddr::new(ip, CLIENT);
            cluster.nodes.push(Node::new(network.place(Host(index)), listen, builder));
        }
        cluster
    }
}

impl Cluster<'_> {
    /// Three nodes, or as many as the builder says.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("peer.secret")
    }

    /// The value of `--cluster` for a process on this host: where it dials the others.
    fn places(&self, from: Host) -> String {
        let place = |(index, slot): (usize, &String)| {
            let to = Host(index);
            let peer = if from == to {
                SocketAddr::new(self.network.ip(to), PEER)
            } else {
                self.network.route(from, to, PEER)
            };
            format!("{slot}={peer}@{}", SocketAddr::new(self.network.ip(to), CLIENT))
        };
        self.slots.iter().enumerate().map(place).collect::<Vec<_>>().join(",")
    }

    /// Gives the cluster its identity, from the host of the first node.
    ///
    /// # Panics
    /// If that is refused.
    pub fn init(&self) {
        let (status, said) = self.run(Host(0), &["init", "--cluster", &self.places(Host(0))]);
        assert!(status, "init was refused:\n{said}");
    }

    /// Runs a subcommand of the server with the peers' secret on a host; whether it
    /// succeeded, and what it said.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, host: Host, args: &[&str]) -> (bool, String) {
        let program = binary("ticketing-server", "ticketing-server");
        let output = self.network.place(host).within(|| {
            let mut command = Command::new(program);
            command.args(args).arg("--peer-secret-file").arg(self.secret()).stdin(Stdio::null()).output()
        });
        let output = output.expect("a process");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Where clients on this host find the nodes.
    #[must_use]
    pub fn addresses(&self, from: Host) -> Vec<SocketAddr> {
        self.hosts().map(|to| self.network.route(from, to, CLIENT)).collect()
    }

    /// The hosts of the nodes.
    pub fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        (0..self.nodes.len()).map(Host)
    }

    /// The node on a host.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn node(&mut self, host: Host) -> &mut Node {
        &mut self.nodes[host.0]
    }

    /// What a node says of itself; `None`: it says nothing.
    ///
    /// # Panics
    /// If it says something that cannot be read.
    #[must_use]
    pub fn status(&self, host: Host) -> Option<Status> {
        let (code, body) = self.nodes[host.0].admin("/status")?;
        assert_eq!(code, 200, "{body}");
        Some(serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// The node that takes itself for the leader, in the highest term of those that do.
    #[must_use]
    pub fn leader(&self) -> Option<Host> {
        let leads = |host| self.status(host).filter(|status| status.role == "leader");
        let leaders = self.hosts().filter_map(|host| Some((leads(host)?.term, host)));
        leaders.max().map(|(_, host)| host)
    }

    /// Waits until a node leads.
    ///
    /// # Panics
    /// If none does in time.
    #[track_caller]
    pub fn wait_leader(&self) -> Host {
        let mut leader = None;
        wait_until("a leader", PATIENCE, || {
            leader = self.leader();
            leader.is_some()
        });
        leader.expect("a leader")
    }

    /// Waits until what the nodes say of themselves is as wanted; `None` stands for a node
    /// that says nothing.
    ///
    /// # Panics
    /// If it is not in time.
    #[track_caller]
    pub fn wait(&self, what: &str, mut wanted: impl FnMut(&[Option<Status>]) -> bool) {
        wait_until(what, PATIENCE, || {
            let statuses: Vec<_> = self.hosts().map(|host| self.status(host)).collect();
            wanted(&statuses)
        });
    }
}
