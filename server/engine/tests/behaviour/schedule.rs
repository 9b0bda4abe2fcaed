//! Random schedules: what happens to an engine, step by step, in words.
//!
//! A step names connections, keys and tokens by their part ("the token of the
//! lock"), not by their value, so that it keeps its meaning when the steps
//! before it are shrunk away.

use std::fmt;
use std::ops::Range;

use proptest::prelude::*;
use ticketing_engine::{Config, Input, Limits, Seq};

use crate::cluster::NODES;
use crate::machine::name;
use crate::model::Key;

pub(crate) const KEYS: [Key; 3] = [b"a", b"ab", b"a-key-that-is-longer-than-most"];

/// The key of the long queues.
pub(crate) const CROWDED: Key = KEYS[0];

/// How many connections are open at any time. One that closes is followed by a new one.
pub(crate) const CONNECTIONS: usize = 4;

/// One thing that happens.
#[derive(Clone)]
pub(crate) enum Step {
    Acquire {
        conn: usize,
        key: Key,
        owner: u64,
        wait_secs: u8,
        lease_secs: u8,
        late_ns: u64,
    },
    /// Acquires of many owners, one after the other.
    Crowd {
        conn: usize,
        owners: Range<u64>,
        wait_secs: u8,
    },
    /// And their cancels.
    Disperse {
        conn: usize,
        owners: Range<u64>,
    },
    Release {
        conn: usize,
        key: Key,
        token: Token,
    },
    Cancel {
        conn: usize,
        key: Key,
        owner: u64,
    },
    Place {
        conn: usize,
        key: Key,
        owner: u64,
    },
    Verify {
        conn: usize,
        key: Key,
        owner: u64,
    },
    /// Its waiters leave; it is still there.
    Leave {
        conn: usize,
    },
    Close {
        conn: usize,
    },
    Undelivered {
        key: Key,
        token: Token,
    },
    Pass {
        time: Time,
    },
    Tick,
    Seal,
    Drain,
    /// Something becomes of a batch of the engine so many offices ago.
    Fate {
        fate: Fate,
        back: usize,
    },
    /// Everything decided commits and is answered.
    CatchUp,
    DrainServer,
    Retire,
    /// Another engine takes office, on this node. So many batches of the last one that
    /// were in flight are in the log.
    Succeed {
        node: usize,
        survive: usize,
        reconnect: bool,
    },
    /// A node applies so many entries of the log.
    Apply {
        node: usize,
        entries: usize,
    },
    TakeSnapshot {
        of: usize,
    },
    SendSnapshot {
        to: usize,
        transit_ns: u64,
        /// The machine was just started. If an engine runs there, it was not.
        booted: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    /// The one under which the key is held, as far as it was decided.
    Current,
    /// One that a client was told for this key before.
    Told,
    /// The one that the next grant will have.
    Next,
    /// The one of another key's lock.
    OfAnotherKey,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    Nanos(u64),
    /// Up to the earliest deadline, to the nanosecond.
    ToDeadline,
    /// Up to a nanosecond before.
    JustBeforeDeadline,
}

/// What is told of a batch in flight. The engine in office learns with it what becomes
/// of the batch; an earlier one learns only what became of it when the office changed,
/// so that "commits" and "is refused" may both turn out to be the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The oldest batch commits.
    Commit,
    /// One of the batches was certainly never appended.
    Refuse { which: usize },
    /// Nobody knows about one of the batches.
    Unknown { which: usize },
    /// A word about a batch of which there was one before, or that never was.
    Nonsense { seq: Seq, word: Word },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Committed,
    Refused,
    Unknown,
}

impl Word {
    pub(crate) const fn of(self, seq: Seq) -> Input<'static> {
        match self {
            Self::Committed => Input::Committed(seq),
            Self::Refused => Input::Refused(seq),
            Self::Unknown => Input::Unknown(seq),
        }
    }
}

/// An engine to be, and what happens to it.
#[derive(Clone)]
pub(crate) struct Schedule {
    pub(crate) config: Config,
    /// What the clock of each node says is so many nanoseconds more than the time.
    pub(crate) ahead: [i64; NODES],
    pub(crate) steps: Vec<Step>,
}

/// Schedules of an engine in office.
pub(crate) fn in_office() -> impl Strategy<Value = Schedule> {
    schedule(prop::collection::vec(step(), 1..150))
}

/// Schedules at whose end the server drains, or the engine loses its office.
pub(crate) fn with_an_end() -> impl Strategy<Value = Schedule> {
    let end = prop_oneof![1 => Just(Step::DrainServer), 3 => Just(Step::Retire)];
    let fate = prop_oneof![5 => fate(), 1 => nonsense()];
    let fate = fate.prop_map(|fate| Step::Fate { fate, back: 0 });
    let after = prop_oneof![2 => step(), 1 => fate, 1 => Just(Step::Drain)];
    let steps = (prop::collection::vec(step(), 1..80), end, prop::collection::vec(after, 1..40));
    schedule(steps.prop_map(|(mut steps, end, after)| {
        steps.push(end);
        steps.extend(after);
        steps
    }))
}

/// Schedules in which one engine follows the other, while the earlier ones go on for as
/// long as they do not know.
pub(crate) fn with_successors() -> impl Strategy<Value = Schedule> {
    let node = 0..NODES;
    let told = prop_oneof![4 => Just(Fate::Commit), 6 => fate(), 1 => nonsense()];
    let transit_ns = prop_oneof![Just(0), 1u64..5_000_000_000];
    let one = prop_oneof![
        60 => step(),
        8 => (told, 1..4usize).prop_map(|(fate, back)| Step::Fate { fate, back }),
        1 => prop_oneof![fate(), nonsense()].prop_map(|fate| Step::Fate { fate, back: 0 }),
        1 => Just(Step::Retire),
        4 => (node.clone(), 1..4usize).prop_map(|(node, entries)| Step::Apply { node, entries }),
        3 => node.clone().prop_map(|of| Step::TakeSnapshot { of }),
        3 => (node, transit_ns, any::<bool>())
            .prop_map(|(to, transit_ns, booted)| Step::SendSnapshot { to, transit_ns, booted }),
    ];
    let part = prop_oneof![20 => one.prop_map(|step| vec![step]), 1 => succession()];
    schedule(prop::collection::vec(part, 1..150).prop_map(|parts| parts.concat()))
}

/// Several batches are in flight, another engine takes over, and the last one hears what
/// became of them.
fn succession() -> impl Strategy<Value = Vec<Step>> {
    let turn = step().prop_map(|step| [step, Step::Seal]);
    let turns = prop::collection::vec(turn, 0..5);
    let succeed = (0..NODES, 0..5usize, prop::bool::weighted(0.8))
        .prop_map(|(node, survive, reconnect)| Step::Succeed { node, survive, reconnect });
    let fates = prop::collection::vec(fate().prop_map(|fate| Step::Fate { fate, back: 1 }), 0..4);
    (turns, succeed, fates).prop_map(|(turns, succeed, fates)| {
        turns.into_iter().flatten().chain([succeed]).chain(fates).collect()
    })
}

/// Schedules of long queues for one key, with gaps wherever somebody left.
pub(crate) fn with_crowds() -> impl Strategy<Value = Schedule> {
    let conn = 0..CONNECTIONS;
    let owner = 0u64..500;
    let owners = (owner.clone(), 1u64..300).prop_map(|(first, count)| first..first + count);
    let few = (owner.clone(), 1u64..10).prop_map(|(first, count)| first..first + count);
    let step = prop_oneof![
        8 => (conn.clone(), owners.clone(), prop_oneof![1u8..5, Just(255u8)])
            .prop_map(|(conn, owners, wait_secs)| Step::Crowd { conn, owners, wait_secs }),
        6 => (conn.clone(), prop_oneof![owners, few])
            .prop_map(|(conn, owners)| Step::Disperse { conn, owners }),
        6 => (conn.clone(), owner.clone())
            .prop_map(|(conn, owner)| Step::Place { conn, key: CROWDED, owner }),
        2 => (conn.clone(), owner).prop_map(|(conn, owner)| Step::Verify { conn, key: CROWDED, owner }),
        6 => conn.clone().prop_map(|conn| Step::Release { conn, key: CROWDED, token: Token::Current }),
        1 => conn.clone().prop_map(|conn| Step::Leave { conn }),
        1 => conn.prop_map(|conn| Step::Close { conn }),
        2 => time().prop_map(|time| Step::Pass { time }),
        2 => Just(Step::Tick),
        2 => Just(Step::CatchUp),
    ];
    let config = config().prop_map(|config| {
        let limits =
            Limits { in_flight_per_connection: 1_000, waiters_per_key: 700, waiters: 900, ..config.limits };
        Config { limits, ..config }
    });
    let steps = prop::collection::vec(step, 1..30);
    (config, steps).prop_map(|(config, steps)| Schedule { config, ahead: [0; NODES], steps })
}

fn schedule(steps: impl Strategy<Value = Vec<Step>>) -> impl Strategy<Value = Schedule> {
    let ahead = prop_oneof![Just(0), -95_000_000_000..0i64, 0..1_000_000_000_000i64];
    (config(), prop::array::uniform(ahead), steps).prop_map(|(config, ahead, steps)| Schedule {
        config,
        ahead,
        steps,
    })
}

fn config() -> impl Strategy<Value = Config> {
    let roomy = Just(Limits {
        waiters_per_key: 100,
        waiters: 100,
        held: 100,
        in_flight_per_connection: 100,
        tombstones: 100,
        timers_per_tick: 100,
    });
    let tight = (1u32..5, 1u32..8, 1u32..4, 1u32..5, 0u32..4, 1u32..3).prop_map(
        |(waiters_per_key, waiters, held, in_flight_per_connection, tombstones, timers_per_tick)| Limits {
            waiters_per_key,
            waiters,
            held,
            in_flight_per_connection,
            tombstones,
            timers_per_tick,
        },
    );
    let last_ones = (0u64..12).prop_map(|left| u64::MAX - left);
    let tokens = prop_oneof![4 => 0u64..4, 1 => last_ones];
    (prop_oneof![roomy, tight], tokens, any::<[u64; 2]>())
        .prop_map(|(limits, next_token, hash_seed)| Config { limits, hash_seed, next_token })
}

fn step() -> impl Strategy<Value = Step> {
    let conn = 0..CONNECTIONS;
    let key = prop::sample::select(KEYS.as_slice());
    let owner = prop_oneof![8 => 0u64..4, 1 => Just(u64::MAX)];
    let wait_secs = prop_oneof![2 => Just(0u8), 8 => 1u8..5, 1 => Just(255u8)];
    let lease_secs = prop_oneof![8 => 1u8..5, 1 => Just(250u8)];
    let late_ns = prop_oneof![
        8 => Just(0u64),
        2 => 1u64..3_000_000,
        2 => (1u64..4).prop_map(|secs| secs * 1_000_000_000),
    ];
    let token = prop_oneof![
        6 => Just(Token::Current),
        2 => Just(Token::Told),
        1 => Just(Token::Next),
        1 => Just(Token::OfAnotherKey),
    ];
    prop_oneof![
        24 => (conn.clone(), key.clone(), owner.clone(), wait_secs, lease_secs, late_ns).prop_map(
            |(conn, key, owner, wait_secs, lease_secs, late_ns)| Step::Acquire {
                conn, key, owner, wait_secs, lease_secs, late_ns,
            },
        ),
        8 => (conn.clone(), key.clone(), token.clone())
            .prop_map(|(conn, key, token)| Step::Release { conn, key, token }),
        2 => (conn.clone(), key.clone(), owner.clone())
            .prop_map(|(conn, key, owner)| Step::Cancel { conn, key, owner }),
        2 => (conn.clone(), key.clone(), owner.clone())
            .prop_map(|(conn, key, owner)| Step::Place { conn, key, owner }),
        3 => (conn.clone(), key.clone(), owner).prop_map(|(conn, key, owner)| Step::Verify { conn, key, owner }),
        1 => conn.clone().prop_map(|conn| Step::Leave { conn }),
        2 => conn.prop_map(|conn| Step::Close { conn }),
        2 => (key, token).prop_map(|(key, token)| Step::Undelivered { key, token }),
        9 => time().prop_map(|time| Step::Pass { time }),
        8 => Just(Step::Tick),
        8 => Just(Step::Seal),
        6 => Just(Step::Fate { fate: Fate::Commit, back: 0 }),
        5 => Just(Step::Drain),
        3 => Just(Step::CatchUp),
    ]
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        1 => Just(Time::Nanos(1)),
        2 => (1u64..2_500).prop_map(|ms| Time::Nanos(ms * 1_000_000)),
        4 => Just(Time::ToDeadline),
        1 => Just(Time::JustBeforeDeadline),
    ]
}

fn nonsense() -> impl Strategy<Value = Fate> {
    let word = prop::sample::select([Word::Committed, Word::Refused, Word::Unknown].as_slice());
    (0u64..12, word).prop_map(|(seq, word)| Fate::Nonsense { seq, word })
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Commit),
        (0usize..6).prop_map(|which| Fate::Refuse { which }),
        (0usize..6).prop_map(|which| Fate::Unknown { which }),
    ]
}

impl fmt::Debug for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "with {:?}, clocks ahead by {:?},", self.config, self.ahead)?;
        self.steps.iter().try_for_each(|step| writeln!(out, "  {step:?}"))
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Acquire { conn, key, owner, wait_secs, lease_secs, late_ns } => write!(
                out,
                "connection {conn} acquires {} as {owner}, wait {wait_secs} s, lease {lease_secs} s, \
                 received {late_ns} ns ago",
                name(key)
            ),
            Self::Crowd { conn, ref owners, wait_secs } => {
                write!(
                    out,
                    "connection {conn} acquires {} as each of {owners:?}, wait {wait_secs} s",
                    name(CROWDED)
                )
            }
            Self::Disperse { conn, ref owners } => {
                write!(out, "connection {conn} cancels each of {owners:?} on {}", name(CROWDED))
            }
            Self::Release { conn, key, token } => {
                write!(out, "connection {conn} releases {}, token: {token:?}", name(key))
            }
            Self::Cancel { conn, key, owner } => {
                write!(out, "connection {conn} cancels {owner} on {}", name(key))
            }
            Self::Place { conn, key, owner } => {
                write!(out, "connection {conn} asks for the place of {owner} in {}", name(key))
            }
            Self::Verify { conn, key, owner } => {
                write!(out, "connection {conn} verifies {owner} on {}", name(key))
            }
            Self::Leave { conn } => write!(out, "connection {conn} has said its last word"),
            Self::Close { conn } => write!(out, "connection {conn} closes, another takes its place"),
            Self::Undelivered { key, token } => {
                write!(out, "a grant of {} was not delivered, token: {token:?}", name(key))
            }
            Self::Pass { time: Time::Nanos(nanos) } => write!(out, "{nanos} ns pass"),
            Self::Pass { time: Time::ToDeadline } => write!(out, "time passes up to the next deadline"),
            Self::Pass { time: Time::JustBeforeDeadline } => {
                write!(out, "time passes until just before the next deadline")
            }
            Self::Tick => write!(out, "tick"),
            Self::Seal => write!(out, "seal"),
            Self::Drain => write!(out, "drain the answers"),
            Self::Fate { fate, back } => {
                match fate {
                    Fate::Commit => write!(out, "the oldest batch commits"),
                    Fate::Refuse { which } => write!(out, "batch {which} of those in flight is refused"),
                    Fate::Unknown { which } => {
                        write!(out, "the fate of batch {which} of those in flight stays unknown")
                    }
                    Fate::Nonsense { seq, word } => {
                        write!(out, "batch {seq} is said once more to be {word:?}")
                    }
                }?;
                write!(out, ", {back} offices ago")
            }
            Self::CatchUp => write!(out, "everything commits and is answered"),
            Self::DrainServer => write!(out, "the server drains"),
            Self::Retire => write!(out, "the engine retires"),
            Self::Succeed { node, survive, reconnect } => {
                let who = if reconnect { "everybody goes there" } else { "nobody notices" };
                write!(out, "node {node} takes office, {survive} batches in flight survive, {who}")
            }
            Self::Apply { node, entries } => write!(out, "node {node} applies {entries} entries"),
            Self::TakeSnapshot { of } => write!(out, "node {of} takes a snapshot"),
            Self::SendSnapshot { to, transit_ns, booted } => {
                let node = if booted { "new node" } else { "node" };
                write!(out, "{node} {to} gets the snapshot, which is under way for {transit_ns} ns")
            }
        }
    }
}
