//! Namespaces, and packets that are dropped in them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use ticketing_chaos::{Cut, Host, Network};
use ticketing_test_support::{PATIENCE, wait_until};

/// A lab, or nothing where there can be none; then nothing can be tested here.
fn lab(hosts: usize) -> Option<Network> {
    let network = Network::new(hosts);
    network.lab().is_some().then_some(network)
}

struct Radio(Vec<(UdpSocket, SocketAddr)>);

impl Radio {
    fn new(network: &Network, hosts: usize) -> Self {
        let socket = |host| {
            let addr = SocketAddr::new(network.ip(Host(host)), 7000);
            let socket = network.place(Host(host)).within(|| UdpSocket::bind(addr)).unwrap();
            (socket, addr)
        };
        Self((0..hosts).map(socket).collect())
    }

    fn send(&self, from: usize, to: usize) {
        self.0[from].0.send_to(&[u8::try_from(from).unwrap()], self.0[to].1).unwrap();
    }

    /// From whom a host hears within a time.
    fn heard(&self, host: usize, patience: Duration) -> Vec<u8> {
        let mut from = [0];
        self.0[host].0.set_read_timeout(Some(patience)).unwrap();
        std::iter::from_fn(|| self.0[host].0.recv(&mut from).ok().map(|_| from[0])).collect()
    }

    /// Who hears whom, a row for each speaker.
    fn map(&self) -> String {
        let hosts = self.0.len();
        for from in 0..hosts {
            (0..hosts).filter(|&to| to != from).for_each(|to| self.send(from, to));
        }
        let heard: Vec<Vec<u8>> =
            (0..hosts).map(|host| self.heard(host, Duration::from_millis(300))).collect();
        let cell = |from: usize, to: usize| match heard[to].iter().any(|&it| usize::from(it) == from) {
            _ if from == to => '.',
            true => 'x',
            false => '-',
        };
        let row = |from| (0..hosts).map(|to| cell(from, to)).collect::<String>();
        (0..hosts).map(row).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn cuts_are_carried_out() {
    let Some(network) = lab(4) else { return };
    let radio = Radio::new(&network, 4);
    let [a, b, c, d] = [0, 1, 2, 3].map(Host);
    // The first packets may have to find out where to.
    wait_until("a switch that works", PATIENCE, || radio.map() == ".xxx x.xx xx.x xxx.");
    for (cut, map) in [
        (Cut::one_way(a, c), ".x-x x.xx xx.x xxx."),
        (Cut::isolate(b, &[a, b, c, d]), ".-xx -.-- x-.x x-x."),
        (Cut::bridge(&[a], b, &[c, d]), ".x-- x.xx -x.x -xx."),
        (Cut::chain(&[a, b, c, d]), ".x-- x.x- -x.x --x."),
        (Cut::none(), ".xxx x.xx xx.x xxx."),
    ] {
        network.cut(&cut);
        assert_eq!(radio.map(), map, "{cut:?}");
    }
}

#[test]
fn packets_are_lost() {
    let Some(network) = lab(2) else { return };
    let radio = Radio::new(&network, 2);
    wait_until("a switch that works", PATIENCE, || radio.map() == ".x x.");
    network.lab().unwrap().apply(&Cut::none(), 30);
    (0..400).for_each(|_| radio.send(0, 1));
    let heard = radio.heard(1, Duration::from_millis(300)).len();
    assert!((200..=360).contains(&heard), "{heard} of 400");
}

#[test]
fn a_rate_is_limited() {
    let Some(network) = lab(2) else { return };
    let addr = SocketAddr::new(network.ip(Host(1)), 7001);
    let listener = network.place(Host(1)).within(|| TcpListener::bind(addr)).unwrap();
    let transfer = |bytes: usize| {
        let start = Instant::now();
        let mut from = network.place(Host(0)).within(|| TcpStream::connect(addr)).unwrap();
        let mut to = listener.accept().unwrap().0;
        from.write_all(&vec![0; bytes]).unwrap();
        drop(from);
        assert_eq!(to.read_to_end(&mut Vec::new()).unwrap(), bytes);
        start.elapsed()
    };
    network.lab().unwrap().rate(Host(0), Some(256));
    let took = transfer(64 * 1024);
    assert!(took > Duration::from_secs(1), "{took:?} for two seconds' worth of data");
    network.lab().unwrap().rate(Host(0), None);
    let took = transfer(64 * 1024);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn what_a_killed_run_left_behind_is_removed() {
    let Some(first) = lab(1) else { return };
    let own = first.place(Host(0)).netns().unwrap().to_owned();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left = format!("ticketing-lab-{}-0-0", ended.id());
    let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success(), "{args:?}");
    ip(&["netns", "add", &left]);
    let mut process = Command::new("ip").args(["netns", "exec", &left, "sleep", "1000"]).spawn().unwrap();
    let netns = |name: &str| std::path::Path::new("/run/netns").join(name);
    let in_there = format!("/proc/{}/ns/net", process.id());
    let inode =
        |path: &std::path::Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    wait_until("a process that is in there", PATIENCE, || inode(in_there.as_ref()) == inode(&netns(&left)));

    let second = lab(1).unwrap();
    assert!(!netns(&left).exists());
    wait_until("the end of the process", PATIENCE, || process.try_wait().unwrap().is_some());
    assert!(netns(&own).exists(), "that of a process which lives");
    drop(second);
    drop(first);
    assert!(!netns(&own).exists());
}

#[test]
fn a_lab_is_out_of_reach_from_outside() {
    let Some(network) = lab(2) else { return };
    let addr = SocketAddr::new(network.ip(Host(0)), 7002);
    let listener = network.place(Host(0)).within(|| TcpListener::bind(addr)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let dial = || TcpStream::connect_timeout(&addr, Duration::from_millis(500));
    // Something else may have that address out there, so it is the listener who is asked.
    drop(dial());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    network.place(Host(1)).within(dial).unwrap();
    listener.accept().unwrap();
}
