//! Clusters of real processes under faults. Whatever their clients saw is judged.
//!
//! Each test is named by the number of its case. `TICKETING_CHAOS_ROUNDS` makes those
//! that repeat a fault repeat it so often; see the README.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod client;
mod clock;
mod crowds;
mod disks;
mod durable;
mod handover;
mod inputs;
mod isolated;
mod leader;
mod leases;
mod matrix;
mod partitions;
mod places;
mod starved;
mod volatile;

use std::time::{Duration, Instant};

use ticketing_chaos::{Load, Network, Running};
use ticketing_history::{Event, History, Outcome, Rules, SECOND, Summary, check};
use ticketing_test_support::{Raw, Reply};

/// How long anything may take that should take a second or two.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a fault is repeated, unless somebody wants figures.
fn rounds(usual: usize) -> usize {
    std::env::var("TICKETING_CHAOS_ROUNDS").map_or(usual, |rounds| rounds.parse().expect("a number"))
}

/// Whether somebody wants figures, and has the time.
fn long() -> bool {
    rounds(0) > 0
}

/// How long what has no rounds goes on: a round is ten seconds of it.
fn time(usual: Duration) -> Duration {
    if long() { Duration::from_secs(10) * u32::try_from(rounds(0)).expect("a small number") } else { usual }
}

/// Tries what only a leader can bear that stays; `None`: it has not. On a machine that is
/// busy with other things one may be starved of processor time, and then another cluster
/// is tried. Whatever else goes wrong is no matter of luck.
#[track_caller]
fn undisturbed(attempt: impl Fn() -> Option<()>) {
    assert!((0..5).any(|_| attempt().is_some()), "no leader has stayed");
}

/// Namespaces for this many nodes and their clients, or nothing where there can be
/// none; then what passes between two hosts cannot be cut.
fn lab(nodes: usize) -> Option<Network> {
    let network = Network::new(nodes + 1);
    network.lab().is_some().then_some(network)
}

/// What clients want from a cluster: fewer of them than cores can bear, as three or
/// more servers run beside them.
fn load() -> Load {
    Load { brokers: 3, workers: 6, pause: Duration::from_millis(10), ..Load::default() }
}

/// What must hold although leaders come and go.
fn rules() -> Rules {
    Rules {
        busy: true,
        late_answer: Some(25 * SECOND),
        late_expiry: Some(25 * SECOND),
        // Many tests take locks beside those of the load.
        dense: false,
        ..Rules::default()
    }
}

#[track_caller]
fn judge_by(history: &History, rules: &Rules) -> Summary {
    let violations = check(history, rules);
    assert!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    let summary = history.summary();
    assert!(summary.granted > 20 && summary.released > 10, "hardly anything happened: {summary:?}");
    summary
}

#[track_caller]
fn judge(history: &History) -> Summary {
    judge_by(history, &rules())
}

/// The load was all there was.
#[track_caller]
fn judge_all(history: &History) -> Summary {
    judge_by(history, &Rules { dense: true, ..rules() })
}

/// Times, and what they are like.
#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    fn add(&mut self, time: Duration) {
        self.0.push(time);
        self.0.sort_unstable();
    }

    /// The time that so many of a hundred do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank - 1]
    }

    #[allow(clippy::print_stderr)] // Figures for whoever asked for them.
    fn tell(&self, what: &str) {
        let (median, worst) = (self.percentile(50), self.percentile(100));
        eprintln!(
            "{what}: {} times, median {median:?}, p99 {:?}, worst {worst:?}",
            self.0.len(),
            self.percentile(99)
        );
    }
}

/// Does something at which a cluster stops to grant, and returns how long it did: from
/// just before the deed to the first grant that cannot have been on its way by then.
fn standstill(running: &Running, what: &str, deed: impl FnOnce()) -> Duration {
    let on_the_way = Duration::from_millis(150);
    let start = Instant::now();
    running.remarking(what, deed);
    std::thread::sleep(on_the_way.saturating_sub(start.elapsed()));
    let before = ticketing_chaos::now();
    let granted = running.granted();
    while running.granted() == granted || running.last_grant() < before {
        assert!(start.elapsed() < PATIENCE, "no grant for {PATIENCE:?} after: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

/// Whether this is a word that only the leader of a majority can say.
const fn is_definite(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Granted { .. } | Reply::GrantedUntil { .. } | Reply::Released { .. } | Reply::NotHeld { .. }
    )
}

/// What a session hears within a time, or until it ends.
fn heard(session: &mut Raw, time: Duration) -> Vec<Reply> {
    let deadline = Instant::now() + time;
    std::iter::from_fn(|| session.read_within(deadline.saturating_duration_since(Instant::now()))).collect()
}

/// Grants of a history that came after a moment.
fn granted_since(history: &History, moment: u64) -> usize {
    let late = |op: &&ticketing_history::Op| {
        op.returned.is_some_and(|it| it.at > moment && matches!(it.outcome, Outcome::Granted { .. }))
    };
    history.ops.iter().filter(late).count()
}

fn note(running: &Running, text: &str) {
    running.noting(Event::Remark { text: text.to_owned() }, || ());
}

/// A process that takes part in nothing says so when a client has authenticated.
fn expect_not_active(address: std::net::SocketAddr) {
    let mut raw = Raw::connect(address);
    let nonce = raw.read_greeting();
    raw.send(format!("{}\n", ticketing_protocol::handshake::digest(b"", &nonce)));
    raw.expect_error("not_active");
}
