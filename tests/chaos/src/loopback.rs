//! Hosts that are addresses of this machine, with a proxy on every way between two.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Cut, Host, Place, Proxy, Way};

/// Addresses of this machine, and proxies between them, made when they are asked for.
#[derive(Debug)]
pub struct Loopback {
    /// The second and third byte of all its addresses.
    net: [u8; 2],
    hosts: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// From whom, to whom, to which port.
    proxies: BTreeMap<(Host, Host, u16), Proxy>,
    cut: Cut,
}

impl Loopback {
    /// This many hosts, with addresses that no other such network uses now.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);

        let number =
            std::process::id().wrapping_mul(31).wrapping_add(NETWORKS.fetch_add(1, Ordering::Relaxed));
        // 127.0 is everybody's.
        let [_, _, low, high] = (number % 65_000 + 256).to_be_bytes();
        Self { net: [low, high], hosts, state: Mutex::default() }
    }

    /// The address of a host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn ip(&self, host: Host) -> IpAddr {
        assert!(host.0 < self.hosts, "no such host");
        self.address(host.0 + 1)
    }

    fn address(&self, last: usize) -> IpAddr {
        let [second, third] = self.net;
        Ipv4Addr::new(127, second, third, u8::try_from(last).expect("fewer than 100 hosts")).into()
    }

    /// What `from` must dial to reach this port of `to`: the proxy between them.
    #[must_use]
    pub fn route(&self, from: Host, to: Host, port: u16) -> SocketAddr {
        let mut state = self.lock();
        let State { proxies, cut } = &mut *state;
        let proxy = proxies.entry((from, to, port)).or_insert_with(|| {
            let listen = SocketAddr::new(self.address(from.0 + 101), 0);
            Proxy::start(listen, SocketAddr::new(self.ip(to), port), &Place::default())
        });
        apply(cut, from, to, proxy);
        proxy.addr()
    }

    /// Carries a cut out, in place of the one before: bytes stop on their way, on
    /// connections that stay open.
    pub fn cut(&self, cut: &Cut) {
        let mut state = self.lock();
        state.cut = cut.clone();
        for ((from, to, _), proxy) in &state.proxies {
            apply(cut, *from, *to, proxy);
        }
    }

    /// Delays what passes between two hosts, in both directions, by `delay` and up to
    /// `jitter` more, on all ways that were asked for so far.
    pub fn slow(&self, one: Host, other: Host, delay: Duration, jitter: Duration) {
        let between = |from: Host, to: Host| (from, to) == (one, other) || (from, to) == (other, one);
        for (_, proxy) in self.lock().proxies.iter().filter(|((from, to, _), _)| between(*from, *to)) {
            proxy.delay(Way::There, delay, jitter);
            proxy.delay(Way::Back, delay, jitter);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn apply(cut: &Cut, from: Host, to: Host, proxy: &Proxy) {
    proxy.stall(Way::There, cut.is_cut(from, to));
    proxy.stall(Way::Back, cut.is_cut(to, from));
}
