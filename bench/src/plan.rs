//! How much of everything a run does.

/// Counts of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often the sides that are compared take turns.
    pub(crate) rounds: u32,
    /// Cycles of one turn of a workload with many tasks.
    pub(crate) cycles: u64,
    /// Cycles of one turn of the sequential workload.
    pub(crate) sequential_cycles: u64,
    /// Keys held at once.
    pub(crate) held_keys: u32,
    /// Cycles of one turn on held keys.
    pub(crate) held_cycles: u32,
    /// Waiters of one key.
    pub(crate) waiters: u32,
    /// Idle connections.
    pub(crate) connections: u32,
    /// Cycles beside a flood.
    pub(crate) flood_cycles: u32,
    /// Cycles of one task with disks; fifty times as many of 64 tasks.
    pub(crate) durable_cycles: u64,
    /// Whether the counts are those for which the targets are meant.
    pub(crate) judged: bool,
}

impl Plan {
    /// What the targets are meant for.
    pub(crate) const FULL: Self = Self {
        rounds: 15,
        cycles: 40_000,
        sequential_cycles: 10_000,
        held_keys: 1_000_000,
        held_cycles: 200_000,
        waiters: 100_000,
        connections: 10_000,
        flood_cycles: 10_000,
        durable_cycles: 200,
        judged: true,
    };

    /// Whether everything still runs and answers right, in seconds.
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        cycles: 4_000,
        sequential_cycles: 500,
        held_keys: 20_000,
        held_cycles: 20_000,
        waiters: 15_000,
        connections: 500,
        flood_cycles: 500,
        durable_cycles: 20,
        judged: false,
    };
}
