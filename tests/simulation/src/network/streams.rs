//! The byte streams between clients and servers: they take as many bytes as their
//! buffers hold, deliver them in order and in any pieces, stop where the network is
//! cut, and can lose their end after any byte.

use std::collections::VecDeque;

use super::{Endpoint, Network};
use crate::events::{Event, Queue};
use crate::random::Random;
use crate::time::{MICROSECOND, SECOND, Time};

/// A kernel gives a connection up when nothing was acknowledged for so long.
pub(super) const UNACKNOWLEDGED: Time = 10 * SECOND;

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
pub(super) struct Stream {
    chunks: VecDeque<Arrival>,
    in_flight: usize,
    capacity: usize,
    /// Nothing arrives before this.
    pub(super) last_at: Time,
    /// Arrivals that were due while the network was cut.
    pub(super) held_up: u32,
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
    pub(super) cut_since: Option<Time>,
    /// One end has vanished without a word.
    half_open: bool,
    to_server: Stream,
    to_client: Stream,
}

impl Conn {
    pub(super) fn stream(&mut self, to: Side) -> &mut Stream {
        match to {
            Side::Server => &mut self.to_server,
            Side::Client => &mut self.to_client,
        }
    }

    pub(super) const fn ends(&self, to: Side) -> (Endpoint, Endpoint) {
        match to {
            Side::Server => (Endpoint::Client(self.client), Endpoint::Node(self.slot)),
            Side::Client => (Endpoint::Node(self.slot), Endpoint::Client(self.client)),
        }
    }
}

impl Network {
    pub(crate) fn open(&mut self, random: &mut Random, (client, link): (u8, u8), slot: u8) -> u64 {
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
        let (from, end) = self.conns.get(&id)?.ends(to);
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
        let (from, end) = conn.ends(by.other());
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
        let at = now + UNACKNOWLEDGED + random.between(0, SECOND);
        queue.push(at, Event::Doomed { conn: id, side: side.other() });
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
        let (from, end) = self.conns.get(&id)?.ends(to);
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
}

impl Stream {
    fn push(&mut self, at: Time, queue: &mut Queue, (conn, to): (u64, Side), arrival: Arrival) {
        self.last_at = self.last_at.max(at);
        self.chunks.push_back(arrival);
        queue.push(self.last_at, Event::Arrives { conn, to });
    }
}
