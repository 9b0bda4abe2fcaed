//! A cluster of real server processes on loopback.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use tempfile::TempDir;

use crate::{PATIENCE, Server, ServerBuilder, binary, wait_until};

/// The peers' secret of a cluster of tests.
const PEER_SECRET: &str = "the secret of the peers in tests";

/// Three or five servers, each with an admin address, in the order of their names
/// `a`, `b`, `c`...
#[derive(Debug)]
pub struct Cluster {
    /// `None`: killed.
    pub nodes: Vec<Option<Server>>,
    builders: Vec<ServerBuilder>,
    places: String,
    folder: TempDir,
}

impl Cluster {
    /// Starts servers that wait to be initialised; `durable`: with a folder each.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn blank(nodes: usize, durable: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the cluster");
        let secret = folder.path().join("peer-secret");
        let mut file = std::fs::File::create(&secret).expect("room for the peer secret");
        file.write_all(PEER_SECRET.as_bytes()).expect("room for the peer secret");
        // All are bound at the same time, so that no two are the same.
        let bound = (0..2 * nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let bound = bound.collect::<Vec<_>>();
        let addrs = bound.iter().map(|listener| listener.local_addr().expect("an address"));
        let addrs = addrs.collect::<Vec<SocketAddr>>();
        drop(bound);
        let place = |(name, addrs): (char, &[SocketAddr])| format!("{name}={}@{}", addrs[0], addrs[1]);
        let places = ('a'..).zip(addrs.chunks(2)).map(place).collect::<Vec<_>>().join(",");
        let builders = ('a'..).zip(addrs.chunks(2)).map(|(name, addrs)| {
            let builder = Server::builder()
                .args(["--cluster", &places, "--slot", &name.to_string()])
                .arg("--peer-secret-file")
                .arg(&secret)
                .listen(addrs[1])
                .admin();
            if durable { builder.data_dir(&folder.path().join(name.to_string())) } else { builder }
        });
        let builders = builders.collect::<Vec<_>>();
        let nodes = builders.iter().map(|builder| Some(builder.start())).collect();
        Self { nodes, builders, places, folder }
    }

    /// The same, initialised and with a leader.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start(nodes: usize, durable: bool) -> Self {
        let cluster = Self::blank(nodes, durable);
        let (success, said) = cluster.operate(&["init"]);
        assert!(success, "init was refused: {said}");
        let _ = cluster.leader();
        cluster
    }

    /// Runs a command of the server with the list of all nodes and the secret;
    /// whether it succeeded, and what it said.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn operate(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(binary("ticketing-server", "ticketing-server"));
        command.args(args).args(["--cluster", &self.places]);
        command.arg("--peer-secret-file").arg(self.folder.path().join("peer-secret"));
        let output = command.output().expect("a process");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The index of the node that grants locks, as soon as there is one.
    ///
    /// # Panics
    /// If there is none in time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        wait_until("a node grants locks", PATIENCE, || {
            leader = (0..self.nodes.len()).find(|&index| self.says(index, "\"serving\":true"));
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    /// Whether a node that runs has this in its status.
    #[must_use]
    pub fn says(&self, index: usize, text: &str) -> bool {
        self.nodes[index].as_ref().is_some_and(|node| node.admin_get("/status").1.contains(text))
    }

    /// The list of all nodes, as each was given it.
    #[must_use]
    pub fn places(&self) -> &str {
        &self.places
    }

    /// A node that runs.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn node(&self, index: usize) -> &Server {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    /// Kills a node (SIGKILL), if it runs.
    pub fn kill(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].take() {
            node.kill();
        }
    }

    /// Starts a node again.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self, index: usize) {
        self.kill(index);
        self.nodes[index] = Some(self.builders[index].start());
    }

    /// Where clients reach the nodes, for a client's list of servers.
    #[must_use]
    pub fn clients(&self) -> String {
        let addrs = self.nodes.iter().flatten().map(|node| node.addr().to_string());
        addrs.collect::<Vec<_>>().join(",")
    }
}
