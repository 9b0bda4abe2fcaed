//! A cluster of server processes, a host for each.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;
use ticketing_test_support::{Raw, Server, binary, wait_until};

use crate::{Host, Load, Network, Node, Running, disk};

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
    noted: bool,
    args: Vec<String>,
    env: Vec<(Host, &'static str, OsString)>,
    slow_disks: Vec<(Host, Duration)>,
}

/// What a node says of itself on its admin page.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// `leader`, `follower`, `learner`, `blank`...
    pub role: String,
    /// Whether it grants locks.
    pub serving: bool,
    /// The cluster's identity, once it has one.
    pub identity: Option<String>,
    /// Its node id, once it has one.
    pub node: Option<u64>,
    /// The term of its vote.
    pub term: u64,
    /// The node that it takes for the leader.
    pub leader: Option<Member>,
    /// Who has a vote.
    pub voters: Vec<Member>,
    /// Who is about to have one.
    pub learners: Vec<Member>,
    /// How far it has applied the log.
    pub applied: u64,
    /// Of the applied state: equal on all nodes at equal `applied`.
    pub state_hash: String,
    /// Keys that are held.
    pub held: u64,
    /// Memory that the log takes, in bytes.
    pub log_bytes: u64,
}

/// A member of the cluster, as a node names it.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    /// Its node id.
    pub node: u64,
    /// The name of its place.
    pub slot: String,
}

/// The whole admin page.
#[derive(Debug, Deserialize)]
struct Page {
    cluster: Option<Status>,
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
        Self {
            nodes: 3,
            durable: false,
            noted: false,
            args: Vec::new(),
            env: Vec::new(),
            slow_disks: Vec::new(),
        }
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

    /// Every node keeps a note of the identity that it was in.
    #[must_use]
    pub const fn noted(mut self) -> Self {
        self.noted = true;
        self
    }

    /// Adds an argument for every node.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets a variable of the environment for the node on a host.
    #[must_use]
    pub fn env(mut self, host: Host, name: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((host, name, value.into()));
        self
    }

    /// Lets every fsync of the nodes on these hosts take so much longer; see
    /// [`slow_disks_are_missing`](crate::slow_disks_are_missing).
    #[must_use]
    pub fn slow_disks(mut self, hosts: &[Host], by: Duration) -> Self {
        self.slow_disks.extend(hosts.iter().map(|&host| (host, by)));
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
            let node = self.node(&cluster, index, Host(index));
            cluster.nodes.push(node);
        }
        cluster
    }

    /// What fills a place, on this host.
    fn node(&self, cluster: &Cluster<'_>, index: usize, host: Host) -> Node {
        let slot = &cluster.slots[index];
        let ip = cluster.network.ip(host);
        let mut builder = Server::builder()
            .args(["--cluster", &cluster.places_with(index, host), "--slot", slot])
            .args(["--peer-listen", &SocketAddr::new(ip, PEER).to_string()])
            .arg("--peer-secret-file")
            .arg(cluster.secret())
            .arg("--insecure-no-auth")
            .args(&self.args);
        if self.durable {
            builder = builder.data_dir(&cluster.data_dir(index));
        }
        if self.noted {
            builder = builder.arg("--state-dir").arg(cluster.folder.path().join(format!("{slot}.state")));
        }
        for (_, name, value) in self.env.iter().filter(|(of, ..)| *of == host) {
            builder = builder.env(name, value);
        }
        for (_, by) in self.slow_disks.iter().filter(|(of, _)| *of == host) {
            builder = disk::slow(builder, *by);
        }
        Node::new(cluster.network.place(host), SocketAddr::new(ip, CLIENT), builder)
    }

    /// A node that is to take the place of another one, from a host of its own.
    #[must_use]
    pub fn successor(&self, cluster: &Cluster<'_>, of: Host, host: Host) -> Node {
        self.node(cluster, of.0, host)
    }
}

impl Cluster<'_> {
    /// Three nodes, or as many as the builder says.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The file with the secret of the peers.
    #[must_use]
    pub fn secret(&self) -> PathBuf {
        self.folder.path().join("peer.secret")
    }

    /// Where a durable node keeps its state.
    #[must_use]
    pub fn data_dir(&self, index: usize) -> PathBuf {
        self.folder.path().join(&self.slots[index])
    }

    /// The value of `--cluster`.
    #[must_use]
    pub fn places(&self) -> String {
        self.places_with(usize::MAX, Host(0))
    }

    /// The same, with one of the places on another host.
    fn places_with(&self, moved: usize, to: Host) -> String {
        let place = |(index, slot): (usize, &String)| {
            let ip = self.network.ip(if index == moved { to } else { Host(index) });
            format!("{slot}={}@{}", SocketAddr::new(ip, PEER), SocketAddr::new(ip, CLIENT))
        };
        self.slots.iter().enumerate().map(place).collect::<Vec<_>>().join(",")
    }

    /// Gives the cluster its identity, from the host of the first node.
    ///
    /// # Panics
    /// If that is refused.
    pub fn init(&self) {
        let (done, said) = self.try_init(&[]);
        assert!(done, "init was refused:\n{said}");
    }

    /// Asks for an identity, with these arguments too; whether there is one now, and what
    /// was said.
    ///
    /// # Panics
    /// If the command cannot be started.
    #[must_use]
    pub fn try_init(&self, args: &[&str]) -> (bool, String) {
        let (places, secret) = (self.places(), self.secret());
        let mut all = vec!["init", "--cluster", &places, "--peer-secret-file"];
        all.push(secret.to_str().expect("a path of letters"));
        self.run(Host(0), &[&all[..], args].concat())
    }

    /// Where the node on a host serves its admin pages, for processes on that host.
    #[must_use]
    pub fn admin(&self, of: Host) -> String {
        self.server(of).admin_addr().to_string()
    }

    /// Lets another process take the place of the node on a host; whether that was
    /// allowed, and what was said.
    ///
    /// # Panics
    /// If the command cannot be started.
    #[must_use]
    pub fn try_replace(&self, host: Host) -> (bool, String) {
        self.run(host, &["replace", &self.slots[host.0], "--admin", &self.admin(host)])
    }

    /// Runs a subcommand of the server on a host; whether it succeeded, and what it said.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, host: Host, args: &[&str]) -> (bool, String) {
        let program = binary("ticketing-server", "ticketing-server");
        let output = self.network.place(host).within(|| {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null()).output()
        });
        let output = output.expect("a process");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Where clients find the node on a host.
    #[must_use]
    pub fn address(&self, of: Host) -> SocketAddr {
        SocketAddr::new(self.network.ip(of), CLIENT)
    }

    /// Where peers find the node on a host.
    #[must_use]
    pub fn peer_address(&self, of: Host) -> SocketAddr {
        SocketAddr::new(self.network.ip(of), PEER)
    }

    /// Where clients find the nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.hosts().map(|host| self.address(host)).collect()
    }

    /// The host that is left to the clients: the one after those of the nodes.
    #[must_use]
    pub fn client(&self) -> Host {
        Host(self.nodes.len())
    }

    /// Lets clients loose on their host.
    #[must_use]
    pub fn load(&self, load: &Load) -> Running {
        load.start(&self.network.place(self.client()), &self.addresses(), 0)
    }

    /// A session with the node on a host, from the host of the clients.
    ///
    /// # Panics
    /// If the node does not let it in.
    #[must_use]
    #[track_caller]
    pub fn session(&self, with: Host) -> Raw {
        self.try_session(with).unwrap_or_else(|| panic!("{with:?} does not let a client in"))
    }

    /// The same, or `None`: the node does not let it in.
    #[must_use]
    pub fn try_session(&self, with: Host) -> Option<Raw> {
        let addr = self.address(with);
        self.network.place(self.client()).within(|| Raw::try_open(addr))
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

    /// The process on a host.
    ///
    /// # Panics
    /// If none runs there.
    #[must_use]
    pub fn server(&self, host: Host) -> &Server {
        self.nodes[host.0].server()
    }

    /// What a node says of itself; `None`: it says nothing.
    ///
    /// # Panics
    /// If it says something that cannot be read.
    #[must_use]
    pub fn status(&self, host: Host) -> Option<Status> {
        let (code, body) = self.nodes[host.0].admin("/status")?;
        assert_eq!(code, 200, "{body}");
        let page: Page = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        page.cluster
    }

    /// The node that serves, in the highest term of those that do.
    #[must_use]
    pub fn leader(&self) -> Option<Host> {
        self.leader_among(|_| true)
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

    /// Waits until a leader serves whose place is filled by another node than this one.
    ///
    /// # Panics
    /// If none does in time.
    #[track_caller]
    pub fn wait_leader_but(&self, not: Host) -> Host {
        let mut leader = None;
        wait_until("another leader", PATIENCE, || {
            leader = self.leader_among(|host| host != not);
            leader.is_some()
        });
        leader.expect("a leader")
    }

    fn leader_among(&self, wanted: impl Fn(Host) -> bool) -> Option<Host> {
        let leads = |host| self.status(host).filter(|status| status.role == "leader" && status.serving);
        let leaders = self.hosts().filter(|&host| wanted(host));
        leaders.filter_map(|host| Some((leads(host)?.term, host))).max().map(|(_, host)| host)
    }

    /// Waits until every place is filled by the process that runs there, with a vote,
    /// and all of them agree on that.
    ///
    /// # Panics
    /// If they do not in time.
    #[track_caller]
    pub fn wait_whole(&self) {
        self.wait("a vote for every process", |statuses| {
            let nodes: Option<Vec<u64>> = statuses.iter().map(|status| status.as_ref()?.node).collect();
            let Some(mut nodes) = nodes else { return false };
            nodes.sort_unstable();
            statuses.iter().flatten().all(|status| {
                let mut voters: Vec<u64> = status.voters.iter().map(|voter| voter.node).collect();
                voters.sort_unstable();
                voters == nodes && status.learners.is_empty() && status.leader.is_some()
            })
        });
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
