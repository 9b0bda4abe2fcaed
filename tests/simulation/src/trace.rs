//! What has happened: a digest of all of it, and the last lines for people.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use ticketing_engine::{Fate, Office, Seq};

use crate::network::Endpoint;
use crate::time::{SECOND, Time};

/// One thing that happened and that somebody who looks for a fault wants to know.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Line {
    Began { nodes: u8, clients: u8, durable: bool },
    Down(Endpoint, &'static str),
    Up(Endpoint, u64),
    Draining(Endpoint),
    Paused(Endpoint),
    Resumed(Endpoint),
    Cut(Vec<(Endpoint, Endpoint)>),
    Healed(Vec<(Endpoint, Endpoint)>),
    Slow(Endpoint, Time),
    Broken { conn: u64, client: u8, slot: u8 },
    Refusing(bool),
    Burst(bool),
    Calm,
    Elected { node: u64, slot: u8, term: u64, last: u64 },
    SteppedDown { slot: u8, term: u64 },
    Truncated { slot: u8, from: u64 },
    Installed { slot: u8, index: u64 },
    Replaced { old: u64, new: u64 },
    InOffice { slot: u8, office: Office, held: usize },
    OutOfOffice { slot: u8, office: Office },
    Committed { index: u64, term: u64, what: String },
    Fate { slot: u8, office: Office, seq: Seq, fate: Fate },
    Asked { client: u8, owner: u64, key: Arc<str>, wait: u8, lease: u8 },
    Granted { client: u8, owner: u64, token: u64, left_ms: u64, verified: bool },
    Refused { client: u8, owner: u64, why: &'static str },
    Uncertain { client: u8, owner: u64, why: &'static str },
    Releases { client: u8, token: u64 },
    Released { client: u8, token: u64, how: &'static str },
    Lost { client: u8, slot: u8, why: String },
}

struct At(Time);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / SECOND, self.0 % SECOND / 1000);
        write!(f, "{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(slot) => write!(f, "node {slot}"),
            Self::Client(client) => write!(f, "client {client}"),
        }
    }
}

struct Ways<'a>(&'a [(Endpoint, Endpoint)]);

impl fmt::Display for Ways<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(from, to)| write!(f, " {from} -> {to};"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { nodes, clients, durable } => {
                let memory = if *durable { "durable" } else { "volatile" };
                write!(f, "{nodes} {memory} nodes, {clients} clients")
            }
            Self::Down(who, how) => write!(f, "{who}: down ({how})"),
            Self::Up(who, id) => write!(f, "{who}: up, id {id}"),
            Self::Draining(who) => write!(f, "{who}: drains"),
            Self::Paused(who) => write!(f, "{who}: stopped"),
            Self::Resumed(who) => write!(f, "{who}: goes on"),
            Self::Cut(ways) => write!(f, "cut:{}", Ways(ways)),
            Self::Healed(ways) => write!(f, "healed:{}", Ways(ways)),
            Self::Slow(who, by) => write!(f, "{who}: slower by {} ms", by / 1_000_000),
            Self::Broken { conn, client, slot } => {
                write!(f, "connection {conn} of client {client} and node {slot} breaks")
            }
            Self::Refusing(on) => {
                write!(f, "leaders {} writes", if *on { "refuse some" } else { "take all" })
            }
            Self::Burst(on) => write!(f, "clients are {}", if *on { "in haste" } else { "at ease" }),
            Self::Calm => f.write_str("no more faults"),
            Self::Elected { node, slot, term, last } => {
                write!(f, "node {slot}: elected, id {node}, term {term}, last entry {last}")
            }
            Self::SteppedDown { slot, term } => write!(f, "node {slot}: does not lead term {term} any more"),
            Self::Truncated { slot, from } => write!(f, "node {slot}: drops its entries from {from} on"),
            Self::Installed { slot, index } => write!(f, "node {slot}: snapshot of {index}"),
            Self::Replaced { old, new } => write!(f, "voter {old} is replaced by {new}"),
            Self::InOffice { slot, office, held } => write!(f, "node {slot}: {office} begins, {held} held"),
            Self::OutOfOffice { slot, office } => write!(f, "node {slot}: {office} ends"),
            Self::Committed { index, term, what } => write!(f, "entry {index} of term {term}: {what}"),
            Self::Fate { slot, office, seq, fate } => {
                write!(f, "node {slot}: {office} batch {seq}: {fate:?}")
            }
            Self::Asked { client, owner, key, wait, lease } => {
                write!(f, "client {client}: {owner:x} asks for {key}, wait {wait}, lease {lease}")
            }
            Self::Granted { client, owner, token, left_ms, verified } => {
                let how = if *verified { "verified" } else { "granted" };
                write!(f, "client {client}: {owner:x} {how}, token {token}, {left_ms} ms left")
            }
            Self::Refused { client, owner, why } => write!(f, "client {client}: {owner:x} {why}"),
            Self::Uncertain { client, owner, why } => {
                write!(f, "client {client}: {owner:x} indeterminate ({why})")
            }
            Self::Releases { client, token } => write!(f, "client {client}: gives {token} back"),
            Self::Released { client, token, how } => write!(f, "client {client}: {token} {how}"),
            Self::Lost { client, slot, why } => {
                write!(f, "client {client}: session to node {slot} over: {why}")
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Trace {
    lines: VecDeque<(Time, Line)>,
    most: usize,
    digest: DefaultHasher,
}

impl Trace {
    /// One that keeps so many lines.
    pub(crate) fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), most: most.max(1), digest: DefaultHasher::new() }
    }

    pub(crate) fn note(&mut self, now: Time, line: Line) {
        (now, &line).hash(&mut self.digest);
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back((now, line));
    }

    /// The same for two runs in which the same happened.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// The last lines, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().map(|(at, line)| format!("{}  {line}", At(*at))).collect()
    }
}
