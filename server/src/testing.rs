//! What the tests of this crate have in common.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

use ticketing_engine::{Nanos, SECOND};
use ticketing_protocol::handshake::Domain;
use ticketing_protocol::{ClientFrame, Key, ServerFrame};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::{Config, Limits, Options, Secrets};
use crate::conn::Message;
use crate::counters::Counters;
use crate::hub::{Credentials, Hub, Phase};
use crate::view::{Lead, View};

/// The clock of the runtime, which a test can pause: it begins at an hour.
pub(crate) fn paused_clock() -> Clock {
    // Another origin for each test thread, but then nobody compares across tests.
    thread_local! {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    }
    Clock::of(|| {
        let elapsed = START.with(|start| Instant::now().saturating_duration_since(**start));
        3600 * SECOND + Nanos::try_from(elapsed.as_nanos()).unwrap()
    })
}

pub(crate) fn config() -> Config {
    Config::new(Options::default(), Secrets::default()).unwrap()
}

pub(crate) fn hub_with(config: &Config, limits: Limits) -> (Arc<Hub>, mpsc::Receiver<Message>) {
    let (driver, inbox) = mpsc::channel(64);
    let hub = Hub {
        clock: paused_clock(),
        limits,
        counters: Arc::new(Counters::default()),
        driver,
        phase: watch::Sender::new(Phase::Serving),
        view: watch::Sender::new(View { domain: Some(Domain([7; 16])), lead: Lead::Here }),
        advertise: None,
        credentials: Credentials::load_here(config).unwrap(),
        last_conn: AtomicU64::new(0),
        last_refusals: Default::default(),
    };
    (Arc::new(hub), inbox)
}

pub(crate) fn hub() -> (Arc<Hub>, mpsc::Receiver<Message>) {
    let config = config();
    hub_with(&config, config.limits)
}

pub(crate) fn key(text: &str) -> Key<'_> {
    Key::new(text).unwrap()
}

pub(crate) fn request(frame: ClientFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

pub(crate) fn answer(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

pub(crate) fn acquire(owner: u64, wait: u8, name: &str) -> Vec<u8> {
    request(ClientFrame::Acquire { wait, lease: 10, owner, key: key(name) })
}

pub(crate) fn release(token: u64, name: &str) -> Vec<u8> {
    request(ClientFrame::Release { token, key: key(name) })
}
