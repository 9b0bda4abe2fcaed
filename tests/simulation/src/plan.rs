//! What a run is like: drawn from its seed.

use std::sync::Arc;

use crate::mutant::Mutant;
use crate::network::SLOW;
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND, MINUTE, SECOND, Time};

/// How far the clocks of nodes may be from true time, in millionths. A client counts
/// 0.5 % less than a lease, so a node may be that much faster than a client, no more;
/// a slow node only makes a lease longer.
const NODE_DRIFT: (i32, i32) = (-10_000, 2_500);
const CLIENT_DRIFT: (i32, i32) = (-2_500, 10_000);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mutant: Option<Mutant>,
    pub(crate) nodes: u8,
    pub(crate) clients: u8,
    /// Concurrent users of each client.
    pub(crate) workers: u8,
    pub(crate) keys: Vec<Arc<str>>,
    /// Nodes keep their memory over a restart.
    pub(crate) durable: bool,
    /// The memory of a majority is lost at once, which ends the cluster for good.
    pub(crate) loses_majority: bool,
    /// How long faults happen.
    pub(crate) faulty_for: Time,
    /// From one fault to the next, in the mean.
    pub(crate) fault_pause: Time,
    /// From one wish of a worker to the next, in the mean.
    pub(crate) think: Time,
    /// The longest lease and wait that are usual, in seconds.
    pub(crate) usual_secs: u64,
    pub(crate) delay: Time,
    /// How long a fate may be on its way through a server.
    pub(crate) telling: Time,
    /// Buffers of a byte stream.
    pub(crate) buffers: (u64, u64),
    /// Entries that a node keeps behind the last applied one.
    pub(crate) log_kept: u64,
    /// The first token of the cluster.
    pub(crate) first_token: u64,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random, mutant: Option<Mutant>) -> Self {
        let nodes = if random.chance(0.7) { 3 } else { 5 };
        let durable = random.chance(0.3);
        let keys = random.between(1, 5);
        // What people use, and what wire formats stumble over.
        let names = ["seat:12", "k", "\u{1b}\t", "ключ", "a-name-that-is-longer-than-what-is-kept-inline"];
        Self {
            mutant,
            nodes,
            clients: u8::try_from(random.between(2, 6)).unwrap_or(2),
            workers: u8::try_from(random.between(1, 4)).unwrap_or(1),
            keys: names.iter().take(usize::try_from(keys).unwrap_or(1)).map(|&name| name.into()).collect(),
            durable,
            loses_majority: !durable && random.chance(0.12),
            faulty_for: random.between(20 * MINUTE, 100 * MINUTE),
            fault_pause: random.around(40 * SECOND).max(2 * SECOND),
            think: random.around(8 * SECOND).max(50 * MILLISECOND),
            usual_secs: random.pick(&[3, 10, 30, 250]).unwrap_or(10),
            delay: random.between(30 * MICROSECOND, 5 * MILLISECOND),
            telling: random.pick(&[100 * MICROSECOND, 3 * MILLISECOND, 50 * MILLISECOND]).unwrap_or(0),
            buffers: random.pick(&[(20, 40), (60, 2_000), (65_536, 65_536)]).unwrap_or((100, 2_000)),
            log_kept: random.between(5, 400),
            first_token: random.pick(&[0, 1, 1_000, 1 << 60]).unwrap_or(1),
        }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The drift of a node's clock, in millionths.
    pub(crate) fn node_drift(&self, random: &mut Random) -> i32 {
        drift(random, NODE_DRIFT)
    }

    /// The drift of a client's clock, in millionths.
    pub(crate) fn client_drift(&self, random: &mut Random) -> i32 {
        if self.is(Mutant::DriftBeyondMargin) { -12_000 } else { drift(random, CLIENT_DRIFT) }
    }

    /// How much slower a slow machine is.
    pub(crate) fn slowness(&self, random: &mut Random) -> Time {
        random.between(5 * MILLISECOND, SLOW)
    }
}

/// Any drift between two bounds, and the bounds themselves more often than chance.
fn drift(random: &mut Random, (low, high): (i32, i32)) -> i32 {
    let width = u64::from(high.abs_diff(low));
    let above = random.pick(&[0, width]).filter(|_| random.chance(0.3));
    let above = above.unwrap_or_else(|| random.between(0, width));
    low.saturating_add(i32::try_from(above).unwrap_or(0))
}
