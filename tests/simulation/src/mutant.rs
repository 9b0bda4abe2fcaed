//! Faults that can be put into what the simulation itself owns, to see that they
//! are caught.

use std::fmt;
use std::str::FromStr;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A fault in the code around the engine, the replica and the session. Each
        /// one is a mistake that somebody could make in a server or a client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// How it is called on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

mutants! {
    /// The driver tells the engine that a batch was applied when its own log has it.
    SettlesAtAppend = "settles-at-append",
    /// The driver takes office when its node is elected, without an entry of its own.
    OfficeAtElection = "office-at-election",
    /// The engine of an office begins empty, not from the applied table.
    ForgetsTheTable = "forgets-the-table",
    /// A batch counts whatever its number.
    AnySequence = "any-sequence",
    /// After a refused batch the driver keeps its office and its engine.
    KeepsOfficeAfterRefusal = "keeps-office-after-refusal",
    /// A proposal that was waited for too long is taken for one that never was appended.
    LateIsRefused = "late-is-refused",
    /// An entry that was dropped with its leader's tail is taken for one that was applied.
    DroppedIsApplied = "dropped-is-applied",
    /// A snapshot brings the table without its place in the office.
    SnapshotWithoutPlace = "snapshot-without-place",
    /// A snapshot does not say how much of each lease is over.
    SnapshotWithoutElapsed = "snapshot-without-elapsed",
    /// A snapshot is written by a clock that is not that of the table.
    SnapshotClockAhead = "snapshot-clock-ahead",
    /// When a majority has lost its memory, the others go on without it.
    SurvivorsGoOn = "survivors-go-on",
    /// A node that lost its memory votes under the id that it had.
    BlankUnderOldId = "blank-under-old-id",
    /// A vote is given without a look at the log of the candidate.
    BlindVote = "blind-vote",
    /// The engine never hears that a connection has ended.
    ForgetsClosed = "forgets-closed",
    /// The engine never hears of grants of which no byte left.
    ForgetsUndelivered = "forgets-undelivered",
    /// A node that lost its office goes on as if it had not heard.
    DeafToDeposition = "deaf-to-deposition",
    /// A server asks for an office once in a term, and not again.
    OneOfficeATerm = "one-office-a-term",
    /// An acquire of which a byte was sent is sent again.
    SendsAgain = "sends-again",
    /// The client counts a lease from the moment at which the grant came.
    CountsFromAnswer = "counts-from-answer",
    /// The client's clock drifts more than the margin allows for.
    DriftBeyondMargin = "drift-beyond-margin",
    /// A holder goes on acting while it gives the lock back.
    ActsAfterRelease = "acts-after-release",
    /// A grant that comes after its caller has gone is thrown away.
    KeepsLateGrant = "keeps-late-grant",
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = || Self::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|mutant| mutant.name() == name);
        found.ok_or_else(|| format!("no such mutant; there are: {}", known()))
    }
}
