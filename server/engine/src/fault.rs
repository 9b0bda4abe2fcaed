//! Mistakes that a test can put into the engine and the replica, to see that whoever
//! judges what clients saw finds them. There are none in a build for anybody else.

/// The mistakes of a crate, of which one at a time can be put into this process.
#[macro_export]
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A mistake that somebody could have made here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        /// The one that is there, by its number from 1 on; 0: none is.
        static SEEDED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Puts a fault into everything in this process, in place of any other.
            pub fn seed(fault: Option<Self>) {
                let number = fault.map_or(0, Self::number);
                SEEDED.store(number, std::sync::atomic::Ordering::Relaxed);
            }

            pub(crate) fn is_seeded(self) -> bool {
                SEEDED.load(std::sync::atomic::Ordering::Relaxed) == self.number()
            }

            const fn number(self) -> usize {
                self as usize + 1
            }
        }
    };
}

faults! {
    /// A release is taken under whatever token.
    ReleasesUnderAnyToken,
    /// Whoever asks for a release is told that there was one.
    ConfirmsEveryRelease,
    /// A verify says "never" and leaves the acquire in the queue.
    VerifyLeavesTheWaiter,
    /// A verify says "never" and leaves nothing that would refuse a late acquire.
    VerifyLeavesNoTombstone,
    /// A client is told that it has its lease twice over.
    TellsTwiceTheLease,
    /// A key goes to whoever came last.
    ServesTheLastFirst,
    /// Every other token is given to nobody.
    SkipsTokens,
    /// A lease is half as long as it should be.
    HalvesLeases,
    /// When a key is passed on, the lease of the grant before goes on.
    KeepsTheOldLease,
    /// What a verify has told of a grant does not keep it when its connection is gone.
    ForgetsWhatItVerified,
    /// A grant that could not be delivered ends whatever grant its key has now.
    GivesBackWhateverIsHeld,
    /// A wait is a second too short.
    WaitsRunOutEarly,
    /// A grant is told before it has committed.
    AnswersBeforeTheCommit,
    /// A batch of unknown fate is taken for one that was not applied.
    UnknownIsRefused,
    /// A batch of unknown fate is taken for one that was applied.
    UnknownIsApplied,
    /// An engine that takes over ends the leases that it finds.
    EndsLeasesThatItFinds,
    /// To the table, a hand-off leaves the lease as old as it was.
    HandOffKeepsTheAge,
    /// A snapshot makes every lease three minutes older.
    SnapshotsAgeLeases,
}
