//! Hosts that can be cut off from each other, on whatever the system offers.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::loopback::Loopback;
use crate::{Cut, Lab};

/// One machine of a [`Network`], by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(pub usize);

/// Where a process or a thread runs.
#[derive(Clone, Debug, Default)]
pub struct Place {
    netns: Option<String>,
}

impl Place {
    /// The network namespace, if it is not the machine's own.
    #[must_use]
    pub fn netns(&self) -> Option<&str> {
        self.netns.as_deref()
    }

    /// Moves the calling thread there, for good: sockets that it opens are of that host.
    ///
    /// # Panics
    /// If the place is gone.
    pub fn enter(&self) {
        if let Some(name) = &self.netns {
            let file = File::open(format!("/run/netns/{name}")).expect("a network namespace");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
        }
    }

    /// Does something there, on a thread of its own.
    ///
    /// # Panics
    /// If it does.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Hosts, numbered from 0.
#[derive(Debug)]
pub enum Network {
    /// Namespaces, and packets that are dropped.
    Lab(Lab),
    /// Addresses of this machine, and proxies that hold bytes back. It takes no root.
    Loopback(Loopback),
}

impl Network {
    /// This many hosts: a lab, or where there can be none, proxies.
    #[must_use]
    #[allow(clippy::print_stderr)] // So that a log tells what was tested.
    pub fn new(hosts: usize) -> Self {
        match Lab::is_missing() {
            None => Self::Lab(Lab::new(hosts)),
            Some(why) => {
                eprintln!("no network namespaces, proxies instead: {why}");
                Self::loopback(hosts)
            }
        }
    }

    /// This many hosts behind proxies, wherever it runs.
    #[must_use]
    pub fn loopback(hosts: usize) -> Self {
        Self::Loopback(Loopback::new(hosts))
    }

    /// The address at which a host listens.
    #[must_use]
    pub fn ip(&self, host: Host) -> IpAddr {
        match self {
            Self::Lab(lab) => lab.ip(host),
            Self::Loopback(loopback) => loopback.ip(host),
        }
    }

    /// Where processes and threads of a host run.
    #[must_use]
    pub fn place(&self, host: Host) -> Place {
        match self {
            Self::Lab(lab) => Place { netns: Some(lab.netns(host)) },
            Self::Loopback(_) => Place::default(),
        }
    }

    /// What `from` must dial to reach this port of `to` over the network.
    #[must_use]
    pub fn route(&self, from: Host, to: Host, port: u16) -> SocketAddr {
        match self {
            Self::Lab(lab) => SocketAddr::new(lab.ip(to), port),
            Self::Loopback(loopback) => loopback.route(from, to, port),
        }
    }

    /// Carries a cut out, in place of the one before.
    pub fn cut(&self, cut: &Cut) {
        match self {
            Self::Lab(lab) => lab.apply(cut, 0),
            Self::Loopback(loopback) => loopback.cut(cut),
        }
    }

    /// Ends every cut and every loss.
    pub fn heal(&self) {
        self.cut(&Cut::none());
    }

    /// The lab, for what only a lab can do: loss and rates.
    #[must_use]
    pub const fn lab(&self) -> Option<&Lab> {
        match self {
            Self::Lab(lab) => Some(lab),
            Self::Loopback(_) => None,
        }
    }
}
