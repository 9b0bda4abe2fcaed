//! Mistakes that a test can put into a node, to see that whoever judges what clients
//! saw finds them. There are none in a build for anybody else.

ticketing_engine::faults! {
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
