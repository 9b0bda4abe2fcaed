//! What lies between processes: delays, partitions, and the byte streams between
//! clients and servers.
//!
//! A stream takes as many bytes as its buffers hold, delivers them in order and in
//! any pieces, stops where the network is cut, and can lose its end after any byte.

use std::collections::{BTreeMap, VecDeque};

use crate::events::{Event, Queue};
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND, SECOND, Time};

/// A kernel gives a connection up when nothing was acknowledged for so long.
const UNACKNOWLEDGED: Time = 10 * SECOND;

/// A process of the run: the nodes by slot, then the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Node(u8),
    Client(u8),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What comes out of a stream.
#[derive(Debug)]
pub(crate) enum Arrival {
    Bytes(Vec<u8>),
    End,
}

/// One direction of a connection.
#[derive(Debug)]
struct Stream {
    chunks: VecDeque<Arrival>,
    in_flight: usize,
    capacity: usize,
    /// Nothing arrives before this.
    last_at: Time,
    /// Arrivals that were due while the network was cut.
    held_up: u32,
    /// The writer waits for room.
    full: bool,
    /// After so many more bytes the stream ends.
    cut_after: Option<usize>,
    reader_open: bool,
    writer_open: bool,
}

/// A connection of a client to a node.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: u8,
    /// Which of the client's connections it is.
    pub(crate) link: u8,
    pub(crate) slot: u8,
    /// Since when a direction has been cut without a break.
    cut_since: Option<Time>,
    /// One end has vanished without a word.
    half_open: bool,
    to_server: Stream,
    to_client: Stream,
}

impl Conn {
    fn stream(&mut self, to: Side) -> &mut Stream {
        match to {
            Side::Server => &mut self.to_server,
            Side::Client => &mut self.to_client,
        }
    }

    const fn from_to(&self, to: Side) -> (Endpoint, Endpoint) {
        match to {
            Side::Server => (Endpoint::Client(self.client), Endpoint::Node(self.slot)),
            Side::Client => (Endpoint::Node(self.slot), Endpoint::Client(self.client)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    nodes: u8,
    endpoints: usize,
    /// How many faults cut each way.
    cuts: Vec<u8>,
    /// Added to every delay from or to this endpoint.
    slowness: Vec<Time>,
    delay: Time,
    /// How large the buffers of a stream are.
    buffers: (u64, u64),
    conns: BTreeMap<u64, Conn>,
    next_conn: u64,
}

impl Network {
    pub(crate) fn new(nodes: u8, clients: u8, delay: Time, buffers: (u64, u64)) -> Self {
        let endpoints = usize::from(nodes) + usize::from(clients);
        Self {
            nodes,
            endpoints,
            cuts: vec![0; endpoints * endpoints],
            slowness: vec![0; endpoints],
            delay,
            buffers,
            conns: BTreeMap::new(),
            next_conn: 1,
        }
    }

    fn index(&self, endpoint: Endpoint) -> usize {
        match endpoint {
            Endpoint::Node(slot) => usize::from(slot),
            Endpoint::Client(client) => usize::from(self.nodes) + usize::from(client),
        }
    }

    fn way(&self, from: Endpoint, to: Endpoint) -> usize {
        self.index(from) * self.endpoints + self.index(to)
    }

    /// Whether anything gets from one to the other.
    pub(crate) fn reaches(&self, from: Endpoint, to: Endpoint) -> bool {
        from == to || self.cuts.get(self.way(from, to)).is_some_and(|&cuts| cuts == 0)
    }

    pub(crate) fn connected(&self, one: Endpoint, other: Endpoint) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    /// How long something takes from one to the other.
    pub(crate) fn delay(&self, random: &mut Random, from: Endpoint, to: Endpoint) -> Time {
        let slow = [from, to].map(|end| self.slowness.get(self.index(end)).copied().unwrap_or(0));
        let slow = slow.iter().sum::<Time>();
        let usual = 20 * MICROSECOND + random.around(self.delay);
        if slow == 0 { usual } else { usual + random.between(slow / 2, slow) }
    }

    pub(crate) fn slow_down(&mut self, endpoint: Endpoint, by: Time) {
        let index = self.index(endpoint);
        if let Some(slowness) = self.slowness.get_mut(index) {
            *slowness = by;
        }
    }

    /// Cuts these ways, on top of other cuts.
    pub(crate) fn cut(&mut self, now: Time, queue: &mut Queue, random: &mut Random, ways: &[(Endpoint, Endpoint)]) {
        for &(from, to) in ways {
            let way = self.way(from, to);
            if let Some(cuts) = self.cuts.get_mut(way) {
                *cuts += 1;
            }
        }
        for id in self.crossing(ways) {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.cut_since.is_none()) else { continue };
            conn.cut_since = Some(now);
            for side in [Side::Client, Side::Server] {
                let at = now + UNACKNOWLEDGED + random.between(0, SECOND);
                queue.push(at, Event::Doomed { conn: id, side });
            }
        }
    }

    /// Takes such cuts back.
    pub(crate) fn heal(
        &mut self,
        now: Time,
        queue: &mut Queue,
        random: &mut Random,
        ways: &[(Endpoint, Endpoint)],
    ) {
        for &(from, to) in ways {
            let way = self.way(from, to);
            if let Some(cuts) = self.cuts.get_mut(way) {
                *cuts = cuts.saturating_sub(1);
            }
        }
        for id in self.crossing(ways) {
            let Some(conn) = self.conns.get(&id) else { continue };
            let open = [Side::Client, Side::Server].map(|to| {
                let (from, to) = conn.from_to(to);
                self.reaches(from, to)
            });
            let delay = self.delay(random, Endpoint::Client(conn.client), Endpoint::Node(conn.slot));
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if open == [true, true] {
                conn.cut_since = None;
            }
            for (to, open) in [Side::Client, Side::Server].into_iter().zip(open) {
                let stream = conn.stream(to);
                if open {
                    // What was lost is sent again.
                    for _ in 0..std::mem::take(&mut stream.held_up) {
                        stream.last_at = stream.last_at.max(now + delay);
                        queue.push(stream.last_at, Event::Arrives { conn: id, to });
                    }
                }
            }
        }
    }

    /// Takes all cuts of these ways back.
    pub(crate) fn mend(
        &mut self,
        now: Time,
        queue: &mut Queue,
        random: &mut Random,
        ways: &[(Endpoint, Endpoint)],
    ) {
        self.cuts.fill(0);
        self.heal(now, queue, random, ways);
    }

    fn crossing(&self, ways: &[(Endpoint, Endpoint)]) -> Vec<u64> {
        let crosses = |conn: &Conn| {
            [Side::Client, Side::Server].into_iter().any(|to| ways.contains(&conn.from_to(to)))
        };
        self.conns.iter().filter(|(_, conn)| crosses(conn)).map(|(&id, _)| id).collect()
    }

    pub(crate) fn open(
        &mut self,
        random: &mut Random,
        (client, link): (u8, u8),
        slot: u8,
    ) -> u64 {
        let mut stream = || Stream {
            chunks: VecDeque::new(),
            in_flight: 0,
            capacity: usize::try_from(random.between(self.buffers.0, self.buffers.1)).unwrap_or(usize::MAX),
            last_at: 0,
            held_up: 0,
            full: false,
            cut_after: None,
            reader_open: true,
            writer_open: true,
        };
        let (to_server, to_client) = (stream(), stream());
        let id = self.next_conn;
        self.next_conn += 1;
        let conn = Conn { client, link, slot, cut_since: None, half_open: false, to_server, to_client };
        self.conns.insert(id, conn);
        id
    }

    pub(crate) fn conn(&self, id: u64) -> Option<&Conn> {
        self.conns.get(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.conns.keys().copied()
    }

    /// Connections of a process.
    pub(crate) fn ids_of(&self, endpoint: Endpoint) -> Vec<u64> {
        let of = |conn: &Conn| match endpoint {
            Endpoint::Node(slot) => conn.slot == slot,
            Endpoint::Client(client) => conn.client == client,
        };
        self.conns.iter().filter(|(_, conn)| of(conn)).map(|(&id, _)| id).collect()
    }

    /// Hands bytes to the socket; returns how many it took. `None`: the connection is over.
    pub(crate) fn write(
        &mut self,
        now: Time,
        queue: &mut Queue,
        random: &mut Random,
        (id, to): (u64, Side),
        bytes: &[u8],
    ) -> Option<usize> {
        let (from, end) = self.conns.get(&id)?.from_to(to);
        let delay = self.delay(random, from, end);
        let stream = self.conns.get_mut(&id)?.stream(to);
        if !stream.writer_open {
            return None;
        }
        let taken = bytes.len().min(stream.capacity.saturating_sub(stream.in_flight));
        stream.full = taken < bytes.len();
        if taken == 0 {
            return Some(0);
        }
        stream.in_flight += taken;
        let mut rest = bytes.get(..taken).unwrap_or_default();
        while !rest.is_empty() {
            // Now and then it arrives in pieces.
            let piece = if random.chance(0.05) { 1 + random.index(rest.len()) } else { rest.len() };
            let (piece, later) = rest.split_at(piece);
            rest = later;
            stream.push(now + delay, queue, (id, to), Arrival::Bytes(piece.to_vec()));
        }
        Some(taken)
    }

    /// One end closes the connection: nothing more comes in, and the other end
    /// learns of it behind what was written before.
    pub(crate) fn close(&mut self, now: Time, queue: &mut Queue, random: &mut Random, id: u64, by: Side) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (from, end) = conn.from_to(by.other());
        let delay = self.delay(random, from, end);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let inward = conn.stream(by);
        (inward.reader_open, inward.full) = (false, false);
        inward.chunks.clear();
        let outward = conn.stream(by.other());
        if std::mem::replace(&mut outward.writer_open, false) && outward.reader_open {
            outward.push(now + delay, queue, (id, by.other()), Arrival::End);
        }
        if !conn.to_client.reader_open && !conn.to_server.reader_open {
            self.conns.remove(&id);
        }
    }

    /// One end vanishes without a word. Returns nothing to the other one until its
    /// kernel gives up.
    pub(crate) fn vanish(&mut self, now: Time, queue: &mut Queue, random: &mut Random, id: u64, side: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.stream(side).reader_open = false;
        conn.stream(side).chunks.clear();
        conn.stream(side.other()).writer_open = false;
        conn.half_open = true;
        if conn.to_client.reader_open || conn.to_server.reader_open {
            let at = now + UNACKNOWLEDGED + random.between(0, SECOND);
            queue.push(at, Event::Doomed { conn: id, side: side.other() });
        } else {
            self.conns.remove(&id);
        }
    }

    /// The connection breaks: of what is on its way some bytes still arrive.
    pub(crate) fn break_off(&mut self, now: Time, queue: &mut Queue, random: &mut Random, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for to in [Side::Client, Side::Server] {
            let stream = conn.stream(to);
            stream.writer_open = false;
            if stream.reader_open && stream.cut_after.is_none() {
                stream.cut_after = Some(random.index(stream.in_flight + 1));
                // Its turn comes when the bytes before it are through.
                stream.push(now, queue, (id, to), Arrival::End);
            }
        }
    }

    /// What arrives now, at this end.
    pub(crate) fn arrive(&mut self, now: Time, queue: &mut Queue, id: u64, to: Side) -> Option<Arrival> {
        let (from, end) = self.conns.get(&id)?.from_to(to);
        let open = self.reaches(from, end);
        let stream = self.conns.get_mut(&id)?.stream(to);
        if !stream.reader_open {
            return None;
        }
        if !open {
            stream.held_up += 1;
            return None;
        }
        match stream.chunks.pop_front()? {
            Arrival::End => Some(Arrival::End),
            Arrival::Bytes(mut bytes) => {
                stream.in_flight = stream.in_flight.saturating_sub(bytes.len());
                if std::mem::take(&mut stream.full) {
                    queue.push(now + 50 * MICROSECOND, Event::Writable { conn: id, side: to.other() });
                }
                if let Some(left) = &mut stream.cut_after {
                    bytes.truncate(*left);
                    *left -= bytes.len();
                    if bytes.is_empty() {
                        stream.chunks.clear();
                        return Some(Arrival::End);
                    }
                }
                Some(Arrival::Bytes(bytes))
            }
        }
    }

    /// Whether the kernel of this end gives the connection up now.
    pub(crate) fn is_doomed(&self, now: Time, id: u64) -> bool {
        let Some(conn) = self.conns.get(&id) else { return false };
        conn.half_open || conn.cut_since.is_some_and(|since| now >= since + UNACKNOWLEDGED)
    }

    /// The kernel of this end has given the connection up; whatever was on its way
    /// is lost, and the other end learns nothing.
    pub(crate) fn give_up(&mut self, id: u64, side: Side) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.stream(side).reader_open = false;
        conn.stream(side).chunks.clear();
        conn.stream(side.other()).writer_open = false;
        if !conn.to_client.reader_open && !conn.to_server.reader_open {
            self.conns.remove(&id);
        }
    }

    /// How long until a message of this moment is there, or not at all.
    pub(crate) fn message(&self, random: &mut Random, from: Endpoint, to: Endpoint) -> Option<Time> {
        self.reaches(from, to).then(|| self.delay(random, from, to))
    }
}

impl Stream {
    fn push(&mut self, at: Time, queue: &mut Queue, (conn, to): (u64, Side), arrival: Arrival) {
        self.last_at = self.last_at.max(at);
        self.chunks.push_back(arrival);
        queue.push(self.last_at, Event::Arrives { conn, to });
    }
}

/// Beyond this a delay is a fault.
pub(crate) const SLOW: Time = 200 * MILLISECOND;
