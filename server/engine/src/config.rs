//! What an engine is told once.

/// How much an engine takes on. Over a limit an acquire is answered
/// [`Busy`](crate::Answer::Busy), and nothing else is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Waiters of one key.
    pub waiters_per_key: u32,
    /// Waiters of all keys.
    pub waiters: u32,
    /// Keys that are held at one time.
    pub held: u32,
    /// Acquires of one connection without an answer.
    pub in_flight_per_connection: u32,
    /// Tombstones of verify; without room for another one the connection that asked is closed.
    pub tombstones: u32,
    /// Waits, leases and tombstones that one [`Tick`](crate::Input::Tick) runs out.
    pub timers_per_tick: u32,
}

impl Limits {
    /// Waiters of one owner and key. An owner is new for every acquire, so a
    /// client that is right has one; a bound keeps a search among them short.
    pub const SAME_OWNER: u32 = 64;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiters_per_key: 100_000,
            waiters: 1_000_000,
            held: 1_000_000,
            in_flight_per_connection: 16_384,
            tombstones: 100_000,
            timers_per_tick: 8_192,
        }
    }
}

/// What an engine starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How much it takes on.
    pub limits: Limits,
    /// Key of its hash tables. It decides no output; drawn at random, it keeps
    /// clients from choosing keys that collide.
    pub hash_seed: [u64; 2],
    /// The first token to be given out; 0 counts as 1.
    pub next_token: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { limits: Limits::default(), hash_seed: [0; 2], next_token: 1 }
    }
}
