//! What lies between processes: delays, partitions, and connections.

mod streams;

use std::collections::BTreeMap;

use crate::events::{Event, Queue};
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND, SECOND, Time};
pub(crate) use streams::{Arrival, Side};
use streams::{Conn, UNACKNOWLEDGED};

/// A process of the run: the nodes by slot, then the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Node(u8),
    Client(u8),
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
    pub(crate) fn cut(
        &mut self,
        now: Time,
        queue: &mut Queue,
        random: &mut Random,
        ways: &[(Endpoint, Endpoint)],
    ) {
        for &(from, to) in ways {
            let way = self.way(from, to);
            if let Some(cuts) = self.cuts.get_mut(way) {
                *cuts += 1;
            }
        }
        for id in self.crossing(ways) {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.cut_since.is_none()) else {
                continue;
            };
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
                let (from, to) = conn.ends(to);
                self.reaches(from, to)
            });
            let delay = self.delay(random, Endpoint::Client(conn.client), Endpoint::Node(conn.slot));
            // A sender that has tried in vain for long takes its time for the next try.
            let delay = delay + if random.chance(0.3) { random.between(0, 3 * SECOND) } else { 0 };
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
        let crosses =
            |conn: &Conn| [Side::Client, Side::Server].into_iter().any(|to| ways.contains(&conn.ends(to)));
        self.conns.iter().filter(|(_, conn)| crosses(conn)).map(|(&id, _)| id).collect()
    }

    /// How long until a message of this moment is there, or not at all.
    pub(crate) fn message(&self, random: &mut Random, from: Endpoint, to: Endpoint) -> Option<Time> {
        self.reaches(from, to).then(|| self.delay(random, from, to))
    }
}

/// Beyond this a delay is a fault.
pub(crate) const SLOW: Time = 200 * MILLISECOND;
