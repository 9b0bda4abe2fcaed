//! Hosts on one switch, each in a network namespace of its own.
//!
//! All of it, the switch included, is in namespaces of this lab, so labs share
//! nothing, and the machine around them sees nothing. Their names carry the process
//! id: what a killed run left behind is found by it and removed by the next lab.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Cut, Host};

/// Every namespace of every lab begins with this, then the process id, the number of
/// the lab in its process, and the host.
const PREFIX: &str = "ticketing-lab-";

/// Network namespaces, joined by a switch; gone when dropped.
#[derive(Debug)]
pub struct Lab {
    name: String,
    hosts: usize,
}

impl Lab {
    /// Why there can be no lab here; `None`: there can.
    #[must_use]
    pub fn is_missing() -> Option<&'static str> {
        static MISSING: LazyLock<Option<String>> = LazyLock::new(|| probe().err());

        MISSING.as_deref()
    }

    /// This many hosts, which all hear each other.
    ///
    /// # Panics
    /// If the system has no room for it; see [`Lab::is_missing`].
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        static LABS: AtomicUsize = AtomicUsize::new(0);

        remove_leftovers();
        let name = format!("{PREFIX}{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        // From here on, a panic takes down what was set up so far.
        let lab = Self { name, hosts };
        let switch = lab.switch();
        run(&["ip", "netns", "add", &switch]);
        run(&["ip", "-n", &switch, "link", "add", "switch", "up", "type", "bridge"]);
        for host in lab.all() {
            let (netns, port) = (lab.netns(host), port(host));
            run(&["ip", "netns", "add", &netns]);
            run(&[
                "ip", "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns",
                &netns,
            ]);
            run(&["ip", "-n", &switch, "link", "set", &port, "up", "master", "switch"]);
            run(&["ip", "-n", &netns, "address", "add", &format!("{}/24", lab.ip(host)), "dev", "eth0"]);
            run(&["ip", "-n", &netns, "link", "set", "eth0", "up"]);
            run(&["ip", "-n", &netns, "link", "set", "lo", "up"]);
        }
        lab
    }

    fn all(&self) -> impl Iterator<Item = Host> + use<> {
        (0..self.hosts).map(Host)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    /// The namespace of a host.
    #[must_use]
    pub fn netns(&self, host: Host) -> String {
        format!("{}-{}", self.name, host.0)
    }

    /// The address of a host.
    ///
    /// # Panics
    /// If there are more hosts than addresses.
    #[must_use]
    #[allow(clippy::unused_self)] // Every lab has the same addresses, but only a lab has any.
    pub fn ip(&self, host: Host) -> IpAddr {
        let last = u8::try_from(host.0 + 1).expect("fewer than 255 hosts");
        Ipv4Addr::new(10, 77, 0, last).into()
    }

    /// Carries a cut out, in place of the one before, and loses this percentage of
    /// what passes between any two hosts.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn apply(&self, cut: &Cut, loss_percent: u8) {
        for host in self.all() {
            let mut rules = String::new();
            // Dropped where it arrives, so that the sender learns nothing.
            for unheard in cut.unheard_by(host) {
                let _ = writeln!(rules, "ip saddr {} drop", self.ip(unheard));
            }
            if loss_percent > 0 {
                let _ = writeln!(rules, "iif eth0 numgen random mod 100 < {loss_percent} drop");
            }
            let script = format!(
                "table inet faults\ndelete table inet faults\ntable inet faults {{\nchain arriving {{\n\
                 type filter hook input priority 0; policy accept;\n{rules}}}\n}}\n"
            );
            feed(&["ip", "netns", "exec", &self.netns(host), "nft", "-f", "-"], &script);
        }
    }

    /// Limits what a host can send and receive; `None`: no limit.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn rate(&self, host: Host, kbit: Option<u32>) {
        for (netns, device) in [(self.netns(host), "eth0".to_owned()), (self.switch(), port(host))] {
            let root = ["tc", "-n", &netns, "qdisc"];
            let of_device = ["dev", &device, "root"];
            match kbit {
                Some(kbit) => {
                    let rate = format!("{kbit}kbit");
                    let bucket = ["tbf", "rate", &rate, "burst", "4kb", "latency", "400ms"];
                    run(&[&root[..], &["replace"], &of_device, &bucket].concat());
                }
                // It may have had none.
                None => drop(try_run(&[&root[..], &["del"], &of_device].concat(), "")),
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in self.all() {
            let _ = try_run(&["ip", "netns", "del", &self.netns(host)], "");
        }
        let _ = try_run(&["ip", "netns", "del", &self.switch()], "");
    }
}

/// Tries what a lab is made of.
fn probe() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces take root".to_owned());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&str| std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file());
    if let Some(tool) = ["ip", "tc", "nft"].into_iter().find(|tool| !is_there(tool)) {
        return Err(format!("the command {tool} is missing (Debian: apt install iproute2 nftables)"));
    }
    let netns = format!("{PREFIX}{}-probe", std::process::id());
    try_run(&["ip", "netns", "add", &netns], "")?;
    let works = try_run(&["ip", "netns", "exec", &netns, "nft", "add", "table", "inet", "probe"], "");
    let _ = try_run(&["ip", "netns", "del", &netns], "");
    works
}

fn port(host: Host) -> String {
    format!("port{}", host.0)
}

/// Ends the labs of processes that are gone, with whatever runs in them.
fn remove_leftovers() {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let pids = Command::new("ip").args(["netns", "pids", &name]).output();
            let pids = pids.map(|output| output.stdout).unwrap_or_default();
            for pid in String::from_utf8_lossy(&pids).split_whitespace() {
                let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
                let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
            }
            // Another lab may be doing the same.
            let _ = try_run(&["ip", "netns", "del", &name], "");
        }
    }
}

#[track_caller]
fn run(words: &[&str]) {
    feed(words, "");
}

#[track_caller]
fn feed(words: &[&str], input: &str) {
    try_run(words, input).unwrap_or_else(|error| panic!("{error}"));
}

fn try_run(words: &[&str], input: &str) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", words.join(" "));
    let (program, args) = words.split_first().expect("a command");
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    // It may end without reading.
    let _ = child.stdin.take().expect("its input").write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() { Ok(()) } else { Err(failed(&String::from_utf8_lossy(&output.stderr))) }
}
