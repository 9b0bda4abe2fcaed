//! Every request against every state of its key, at whatever serves.

use std::net::SocketAddr;
use std::thread;

use crate::{Raw, Reply, wait_for_queue, wire};

/// How a server must be started for the table: its queues are of the length that is full.
pub const MATRIX_ARGS: [&str; 2] = ["--max-waiters-per-key", "3"];

/// What I do, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    AcquireNow,
    AcquireWaiting,
    /// Under the last token that was given out for the key, whoever got it.
    ReleaseLast,
    /// Under a token that nobody ever got.
    ReleaseWrong,
    /// Under a token that was current once.
    ReleaseStale,
    /// Nothing: the holder's lease runs out.
    Expire,
    /// Of the acquire with which I may be queued.
    Cancel,
    HangUp,
}

const ACTIONS: [Action; 8] = [
    Action::AcquireNow,
    Action::AcquireWaiting,
    Action::ReleaseLast,
    Action::ReleaseWrong,
    Action::ReleaseStale,
    Action::Expire,
    Action::Cancel,
    Action::HangUp,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    HeldByMe,
    HeldByOther,
    HeldByMeWithQueue,
    HeldAndIAmQueued,
    QueueFull,
    JustExpired,
    JustReleased,
    JustHandedOver,
}

/// My acquire of the action, mine that is queued, and those of the third.
const MINE: u64 = 50;
const QUEUED: u64 = 11;
const THIRDS: [u64; 3] = [30, 31, 32];

/// `what I am told / what the third is told : who holds then > who is next > …`
#[rustfmt::skip]
const TABLE: [(State, [&str; 8]); 9] = [
    //                         acquire 0       acquire waiting       release last             release wrong  release stale  expire                  cancel            hang up
    (State::Free,              ["A50/:me",     "A50/:me",            "N/:",                   "N/:",         "N/:",         "/:",                   "/:",             "/:"]),
    (State::HeldByMe,          ["T50/:me",     "/:me>me",            "R/:",                   "N/:me",       "N/:me",       "/:",                   "/:me",           "/:me"]),
    (State::HeldByOther,       ["T50/:other",  "/:other>me",         "R/:",                   "N/:other",    "N/:other",    "/:",                   "/:other",        "/:other"]),
    (State::HeldByMeWithQueue, ["T50/:me>third", "/:me>third>me",    "R/A30:third",           "N/:me>third", "N/:me>third", "/A30:third",           "/:me>third",     "/:me>third"]),
    (State::HeldAndIAmQueued,  ["T50/:other>me", "/:other>me>me",    "R A11/:me",             "N/:other>me", "N/:other>me", "A11/:me",              "B11/:other",     "/:other"]),
    (State::QueueFull,         ["T50/:other>third>third>third", "B50/:other>third>third>third", "R/A30:third>third>third",
                                "N/:other>third>third>third", "N/:other>third>third>third", "/A30:third>third>third",
                                "/:other>third>third>third", "/:other>third>third>third"]),
    (State::JustExpired,       ["A50/:me",     "A50/:me",            "N/:",                   "N/:",         "N/:",         "/:",                   "/:",             "/:"]),
    (State::JustReleased,      ["A50/:me",     "A50/:me",            "N/:",                   "N/:",         "N/:",         "/:",                   "/:",             "/:"]),
    (State::JustHandedOver,    ["T50/:third",  "/:third>me",         "R/:",                   "N/:third",    "N/:third",    "/:",                   "/:third",        "/:third"]),
];

struct Scene {
    key: String,
    me: Raw,
    other: Raw,
    third: Raw,
    probe: Raw,
    /// The last token that was given out, and one that was current before it.
    last: u64,
    stale: u64,
}

impl Scene {
    fn new(addr: SocketAddr, extension: bool, state: State, action: Action, run: &str) -> Self {
        let open = |extension| Raw::open_with(addr, b"", extension);
        let mut scene = Self {
            key: format!("{run}-{state:?}-{action:?}"),
            me: open(extension),
            other: open(extension),
            third: open(extension),
            probe: open(true),
            last: 0,
            stale: 0,
        };
        // Every key has a past.
        scene.stale = grant(&mut scene.other, &scene.key, 1, 0, 60);
        scene.other.release(&scene.key, scene.stale);
        scene.other.expect(&Reply::released(scene.stale, &scene.key));
        scene.last = scene.stale;
        scene.set(state, if action == Action::Expire { 1 } else { 60 });
        scene
    }

    fn set(&mut self, state: State, lease: u8) {
        let key = self.key.clone();
        match state {
            State::Free => {}
            State::HeldByMe | State::HeldByMeWithQueue => self.last = grant(&mut self.me, &key, 10, 0, lease),
            State::HeldByOther | State::HeldAndIAmQueued | State::QueueFull => {
                self.last = grant(&mut self.other, &key, 20, 0, lease);
            }
            State::JustExpired => {
                self.last = grant(&mut self.other, &key, 20, 0, 1);
                // Taken later, with the same lease: when it has run out, so has the first one.
                let later = format!("later than {key}").replace(' ', "-");
                let _ = grant(&mut self.other, &later, 21, 0, 1);
                let _ = grant(&mut self.probe, &later, 22, 10, 60);
            }
            State::JustReleased => {
                self.last = grant(&mut self.other, &key, 20, 0, 60);
                self.other.release(&key, self.last);
                self.other.expect(&Reply::released(self.last, &key));
            }
            State::JustHandedOver => {
                self.stale = grant(&mut self.other, &key, 20, 0, 60);
                self.third.acquire(&key, THIRDS[0], 60, lease);
                self.wait_for_queue(1);
                self.other.release(&key, self.stale);
                self.other.expect(&Reply::released(self.stale, &key));
                self.last = granted(&mut self.third, &key, THIRDS[0]);
            }
        }
        let queued: &[u64] = match state {
            State::HeldByMeWithQueue => &THIRDS[..1],
            State::QueueFull => &THIRDS,
            _ => &[],
        };
        for &owner in queued {
            self.third.acquire(&key, owner, 60, 60);
        }
        if state == State::HeldAndIAmQueued {
            self.me.acquire(&key, QUEUED, 60, 60);
            self.wait_for_queue(1);
        }
        self.wait_for_queue(if state == State::HeldAndIAmQueued { 1 } else { queued.len() });
    }

    fn act(&mut self, action: Action) {
        let key = self.key.clone();
        match action {
            Action::AcquireNow => self.me.acquire(key, MINE, 0, 60),
            Action::AcquireWaiting => self.me.acquire(key, MINE, 60, 60),
            Action::ReleaseLast => self.me.release(key, self.last),
            Action::ReleaseWrong => self.me.release(key, u64::MAX),
            Action::ReleaseStale => self.me.release(key, self.stale),
            Action::Expire => {}
            Action::Cancel => self.me.send(wire::cancel(key, QUEUED)),
            Action::HangUp => {
                drop(std::mem::replace(&mut self.me, Raw::connect(self.probe.tcp().peer_addr().unwrap())));
            }
        }
    }

    /// The queue is told by the probe, so that no answer of the others is lost.
    fn wait_for_queue(&mut self, waiters: usize) {
        wait_for_queue(&mut self.probe, &self.key, waiters);
    }

    fn check(&mut self, action: Action, expected: &str) {
        let (told, chain) = expected.split_once(':').unwrap();
        let (me, third) = told.split_once('/').unwrap();
        for (raw, told) in [(&mut self.me, me), (&mut self.third, third)] {
            let replies: Vec<String> =
                told.split_whitespace().map(|_| short(&raw.read(), &mut self.last)).collect();
            assert_eq!(replies.join(" "), told);
        }
        let chain: Vec<&str> = chain.split('>').filter(|name| !name.is_empty()).collect();
        self.wait_for_queue(chain.len().saturating_sub(1));
        // The lock goes down the chain, and nobody was told more than that.
        for (number, _) in chain.iter().enumerate() {
            self.probe.acquire(&self.key, 70, 0, 60);
            self.probe.expect(&Reply::timed_out(70, &self.key));
            self.probe.release(&self.key, self.last);
            self.probe.expect(&Reply::released(self.last, &self.key));
            if let Some(&next) = chain.get(number + 1) {
                let raw = if next == "me" { &mut self.me } else { &mut self.third };
                assert!(short(&raw.read(), &mut self.last).starts_with('A'));
            }
        }
        // Then it is free; an expiry may still have to come.
        let wait = if action == Action::Expire { 10 } else { 0 };
        let free = grant(&mut self.probe, &self.key, 71, wait, 60);
        assert!(free > self.last);
        for raw in [&mut self.me, &mut self.other, &mut self.third] {
            if action != Action::HangUp {
                raw.release("fence", 1);
                raw.expect(&Reply::not_held(1, "fence"));
            }
        }
    }
}

fn grant(raw: &mut Raw, key: &str, owner: u64, wait: u8, lease: u8) -> u64 {
    raw.acquire(key, owner, wait, lease);
    granted(raw, key, owner)
}

fn granted(raw: &mut Raw, key: &str, owner: u64) -> u64 {
    let mut token = 0;
    assert_eq!(short(&raw.read(), &mut token), format!("A{owner}"), "{key}");
    token
}

/// Op and owner; a grant's token must be greater than the last one.
fn short(reply: &Reply, last: &mut u64) -> String {
    match reply {
        Reply::Granted { token, owner, .. } | Reply::GrantedUntil { token, owner, .. } => {
            assert!(token > last, "{reply:?} behind token {last}");
            *last = *token;
            format!("A{owner}")
        }
        Reply::TimedOut { owner, .. } => format!("T{owner}"),
        Reply::Busy { owner, .. } => format!("B{owner}"),
        Reply::Released { .. } => "R".into(),
        Reply::NotHeld { .. } => "N".into(),
        other => panic!("{other:?}"),
    }
}

/// Does all that can be asked in all states that a key can be in, with base version 1 or
/// with extension 1, and compares what happens with the table; the keys are named by
/// `run`.
///
/// # Panics
/// If something else happens; the thread that does is named by what should have.
pub fn play_matrix(addr: SocketAddr, extension: bool, run: &str) {
    thread::scope(|scope| {
        for (state, row) in TABLE {
            for (action, expected) in ACTIONS.into_iter().zip(row) {
                // Only the extension has a cancel.
                if action != Action::Cancel || extension {
                    thread::Builder::new()
                        .name(format!("{state:?} x {action:?} = {expected}"))
                        .spawn_scoped(scope, move || {
                            let mut scene = Scene::new(addr, extension, state, action, run);
                            scene.act(action);
                            scene.check(action, expected);
                        })
                        .expect("a thread");
                }
            }
        }
    });
}
