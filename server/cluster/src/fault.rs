//! Mistakes that a test can put into a node, to see that whoever judges what clients
//! saw finds them. There are none in a build for anybody else.

use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A mistake that somebody could have made here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

faults! {
    /// A batch counts as applied as soon as it is proposed.
    TellsBeforeTheMajority,
    /// A node comes back from its disk without the last entries that it had acknowledged.
    ComesBackWithoutItsLastEntries,
    /// Every third batch does nothing.
    AppliesNothingOfSomeBatches,
    /// A node tells the others that entries are older than they are.
    TellsThatEntriesAreOlder,
    /// A snapshot tells of no lock.
    SnapshotsHoldNothing,
    /// A new identity gives out tokens that an earlier one has given out.
    NewIdentityBeginsAtOne,
}

/// The one that is there, by its number from 1 on; 0: none is.
static SEEDED: AtomicUsize = AtomicUsize::new(0);

impl Fault {
    /// Puts a fault into every node of this process, in place of any other.
    pub fn seed(fault: Option<Self>) {
        SEEDED.store(fault.map_or(0, Self::number), Ordering::Relaxed);
    }

    pub(crate) fn is_seeded(self) -> bool {
        SEEDED.load(Ordering::Relaxed) == self.number()
    }

    const fn number(self) -> usize {
        self as usize + 1
    }
}
