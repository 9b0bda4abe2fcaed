//! What a node makes of the log: whose batches count, and the table that they
//! add up to.

use std::fmt;

use crate::record::BadRecord;
use crate::{Nanos, Office, Seq, Table, Violation, record};

/// The replicated state of the locks: the same on every node that has applied as
/// much of the log.
///
/// A batch counts only as the next one of the office that holds. So a batch that
/// was proposed in one term and got into the log in another one is skipped whole,
/// and so is what an engine decided on top of a batch that was refused.
///
/// ```
/// use ticketing_engine::{Effect, Office, Replica, record};
///
/// let mut replica = Replica::new([1, 2]);
/// let office = Office { term: 3, run: 1 };
/// assert!(replica.begin(3, office, 100));
///
/// let mut bytes = Vec::new();
/// record::encode([Effect::Grant { key: b"k", owner: 7, token: 100, lease_secs: 10 }].into_iter(), &mut bytes);
/// assert!(replica.apply(0, 3, office, 1, &bytes)?, "the first of this office");
/// assert!(!replica.apply(0, 3, office, 1, &bytes)?, "not twice");
/// assert!(!replica.apply(0, 4, office, 2, &bytes)?, "not in another term");
/// assert_eq!(replica.table().held(), 1);
/// # Ok::<_, ticketing_engine::Broken>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    table: Table,
    place: Place,
}

/// Where a replica stands beside its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The office whose batches count; none: nobody has taken office yet.
    pub office: Option<Office>,
    /// How many of its batches were applied.
    pub batches: Seq,
    /// No token below this one is given out.
    pub first_token: u64,
}

/// A log that cannot be applied. The node must stop: it would not be the same as
/// the others any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Bytes that are no batch.
    Record(BadRecord),
    /// An effect that does not fit the table.
    Violation(Violation),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(bad) => write!(f, "a batch of the log cannot be read: {bad}"),
            Self::Violation(violation) => {
                write!(f, "a batch of the log does not fit the locks that are held: {violation}")
            }
        }
    }
}

impl std::error::Error for Broken {}

impl From<BadRecord> for Broken {
    fn from(bad: BadRecord) -> Self {
        Self::Record(bad)
    }
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Replica {
    /// A replica that has applied nothing. The seed decides no outcome; drawn at
    /// random, it keeps clients from choosing keys that collide.
    #[must_use]
    pub fn new(hash_seed: [u64; 2]) -> Self {
        Self::restore(Table::new(hash_seed), Place::default())
    }

    /// A replica from a snapshot.
    #[must_use]
    pub const fn restore(table: Table, place: Place) -> Self {
        Self { table, place }
    }

    /// Who holds what.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Where it stands beside the table.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// An office begins; false: it is no later than the one that holds, or is said
    /// to begin in another term than that of its entry in the log.
    pub fn begin(&mut self, entry_term: u64, office: Office, first_token: u64) -> bool {
        if office.term != entry_term || self.place.office >= Some(office) {
            return false;
        }
        let first_token = self.place.first_token.max(first_token);
        self.place = Place { office: Some(office), batches: 0, first_token };
        true
    }

    /// Applies a batch; false: it does not count, and nothing was done.
    ///
    /// Leases that begin in it count `since` a time of this node's clock: that of its
    /// proposal, or a later one. The end that a client was told counts from there too.
    ///
    /// # Errors
    /// [`Broken`]; the replica is of no more use then.
    pub fn apply(
        &mut self,
        since: Nanos,
        entry_term: u64,
        office: Office,
        seq: Seq,
        record: &[u8],
    ) -> Result<bool, Broken> {
        let is_next = self.place.office == Some(office) && seq == self.place.batches + 1;
        if !is_next || office.term != entry_term {
            return Ok(false);
        }
        self.table.apply_batch(since, record::decode(record)?)?;
        self.place.batches = seq;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;

    const HELD: Effect<'_> = Effect::Grant { key: b"k", owner: 1, token: 5, lease_secs: 9 };
    const FREED: Effect<'_> = Effect::Release { key: b"k", token: 5 };

    fn bytes(effects: &[Effect<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        record::encode(effects.iter().copied(), &mut bytes);
        bytes
    }

    const fn office(term: u64, run: u64) -> Office {
        Office { term, run }
    }

    #[test]
    fn only_the_next_batch_of_the_office_that_holds_counts() {
        let mut replica = Replica::new([0; 2]);
        let (held, freed, nothing) = (bytes(&[HELD]), bytes(&[FREED]), bytes(&[]));
        assert_eq!(replica.apply(0, 1, office(1, 1), 1, &held), Ok(false), "nobody is in office");
        assert!(replica.begin(1, office(1, 1), 0));
        assert_eq!(replica.apply(0, 1, office(1, 1), 2, &held), Ok(false), "the first is missing");
        assert_eq!(replica.apply(0, 1, office(1, 1), 1, &held), Ok(true));
        assert_eq!(replica.apply(0, 1, office(1, 1), 3, &freed), Ok(false), "the second is missing");
        assert!(replica.begin(1, office(1, 2), 0));
        assert_eq!(replica.apply(0, 1, office(1, 1), 2, &freed), Ok(false), "that office is over");
        assert_eq!(replica.apply(0, 2, office(1, 2), 1, &freed), Ok(false), "another leader's entry");
        assert_eq!(replica.apply(0, 1, office(1, 2), 1, &nothing), Ok(true));
        assert_eq!(replica.apply(0, 1, office(1, 2), 2, &freed), Ok(true));
        assert_eq!(replica.table().held(), 0);
    }

    #[test]
    fn an_office_never_comes_back() {
        let mut replica = Replica::new([0; 2]);
        assert!(replica.begin(2, office(2, 1), 7));
        assert!(!replica.begin(2, office(2, 1), 7) && !replica.begin(2, office(1, 9), 7));
        assert!(!replica.begin(3, office(2, 2), 7), "an entry of another term");
        assert!(replica.begin(3, office(3, 1), 5));
        assert_eq!(replica.place(), Place { office: Some(office(3, 1)), batches: 0, first_token: 7 });
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let mut replica = Replica::new([0; 2]);
        assert!(replica.begin(1, office(1, 1), 0));
        let twice = bytes(&[HELD, HELD]);
        assert!(matches!(replica.apply(0, 1, office(1, 1), 1, &twice), Err(Broken::Violation(_))));
        assert!(matches!(replica.apply(0, 1, office(1, 1), 1, &[9]), Err(Broken::Record(_))));
    }
}
