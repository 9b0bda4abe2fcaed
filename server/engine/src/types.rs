//! What goes into the engine and what comes out of it.

/// Nanoseconds of a monotonic clock that goes on during suspend. Where it
/// starts does not matter.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// One client connection. The caller never uses a value twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Number of a batch of effects, 1 for an engine's first, then dense.
pub type Seq = u64;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Queue for the key.
    Acquire {
        /// How long to wait, in seconds; 0 never queues.
        wait_secs: u8,
        /// Length of the lease, in seconds, 1 to 250.
        lease_secs: u8,
        /// Chosen by the client.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
        /// When the frame arrived.
        received: Nanos,
    },
    /// Give the lock back.
    Release {
        /// The fencing token of the grant.
        token: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Take every waiting acquire of this connection, owner and key out of the queue.
    Cancel {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Ask for the place of this owner, on any connection.
    Place {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Settle an acquire whose answer was lost.
    Verify {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
}

/// Everything that can happen to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A request of a connection.
    Request(ConnId, Request<'a>),
    /// The client has said its last word: its waiters leave, and what was decided for it
    /// is still told. [`Closed`](Self::Closed) follows.
    Leaving(ConnId),
    /// A connection ended: its waiters leave, and grants of it that are still in
    /// flight are given back once they have committed.
    Closed(ConnId),
    /// A grant was answered, but no byte of the answer was handed to the socket
    /// before the connection ended: the lock is given back at once.
    Undelivered {
        /// Token of the grant.
        token: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Time passed: runs out waits and leases that are due, a bounded number
    /// (see [`Limits::timers_per_tick`](crate::Limits)).
    Tick,
    /// The batch of this number has been applied.
    ///
    /// Every batch has one fate: this, [`Refused`](Self::Refused) or
    /// [`Unknown`](Self::Unknown). A second word about one, or a word about a number
    /// that was never sealed, changes nothing. Batches commit in the order of their
    /// numbers: a commit that is told before the fate of an earlier batch waits for
    /// that. One that is told although an earlier batch was refused or stays unknown
    /// contradicts the log; nothing definite is said of it, as if it were unknown too.
    Committed(Seq),
    /// The batch of this number was certainly never appended to the log.
    ///
    /// All that was decided after it stands on it, so this is also the end of the
    /// engine's office: see [`Retire`](Self::Retire).
    Refused(Seq),
    /// Nobody knows whether the batch of this number will be applied. It ends the
    /// office as well.
    Unknown(Seq),
    /// The server is draining: waiters and new acquires are refused, all else is served.
    Drain,
    /// This node lost its office, or never had it: waiters are refused, and so is every
    /// further acquire; a release or a verify is told that this node does not lead, and
    /// nobody has a place. Batches in flight wait for their fate.
    Retire,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The lock is held under this token.
    Granted {
        /// Fencing token.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// Milliseconds from the receipt of the acquire to the proposal of its
        /// grant, rounded down, plus the lease.
        ends_ms: u32,
        /// The lock's name.
        key: &'a [u8],
    },
    /// The wait ran out.
    TimedOut {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Not acquired, and this acquire never will be.
    Busy {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Released.
    Released {
        /// Token of the release.
        token: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Not held under that token.
    NotHeld {
        /// Token of the release.
        token: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// Place in the queue.
    Place {
        /// Owner of the acquire.
        owner: u64,
        /// 1 is the head; 0: not queued here.
        place: u32,
        /// How many wait for the key.
        waiters: u32,
        /// The lock's name.
        key: &'a [u8],
    },
    /// To a verify: that owner holds the key, under this token.
    Verified {
        /// Fencing token.
        token: u64,
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// To a verify: that owner does not hold the key and never will.
    VerifiedBusy {
        /// Owner of the acquire.
        owner: u64,
        /// The lock's name.
        key: &'a [u8],
    },
    /// This node does not lead and did nothing: only the leader hint can be said.
    /// (To a release or a verify; an acquire is told [`Answer::Busy`].)
    NotLeader,
    /// The outcome is unknown; closing the connection is how this wire says so.
    CloseUnknown,
    /// No room for another tombstone: the connection is closed as overloaded.
    CloseOverloaded,
}

/// One change of the replicated state. The order of effects is the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// A free key is now held.
    Grant {
        /// The lock's name.
        key: &'a [u8],
        /// Owner of the acquire.
        owner: u64,
        /// Fencing token, greater than every one before.
        token: u64,
        /// Length of the lease, in seconds.
        lease_secs: u8,
    },
    /// A held key is now free: released.
    Release {
        /// The lock's name.
        key: &'a [u8],
        /// Token of the grant that ends.
        token: u64,
    },
    /// A held key is now free: its lease ran out.
    Expire {
        /// The lock's name.
        key: &'a [u8],
        /// Token of the grant that ends.
        token: u64,
    },
    /// A held key goes straight to the head of its queue: there is no moment between.
    HandOff {
        /// The lock's name.
        key: &'a [u8],
        /// Token of the grant that ends.
        ended: u64,
        /// Whether it ended because its lease ran out.
        expired: bool,
        /// Owner of the next acquire.
        owner: u64,
        /// Its fencing token.
        token: u64,
        /// Length of its lease, in seconds.
        lease_secs: u8,
    },
    /// A verify found that this owner does not hold the key: it never will.
    Bury {
        /// The lock's name.
        key: &'a [u8],
        /// Owner of the acquire.
        owner: u64,
    },
    /// A tombstone is old enough to go.
    Forget {
        /// The lock's name.
        key: &'a [u8],
        /// Owner of the acquire.
        owner: u64,
    },
}
