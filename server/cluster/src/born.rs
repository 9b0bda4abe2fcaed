//! Since when a lease counts, on nodes whose clocks have nothing in common.
//!
//! A lease counts from the proposal of its grant, as the end that its client is told
//! does. The node that makes a batch notes when, on its own clock. Whoever is sent the
//! entry is told how old it is, and notes the moment at which it came less that age.
//! What passes on the way is not in the age: there the lease ends later by as much,
//! and never earlier.

use openraft::EntryPayload;
use openraft::raft::AppendEntriesRequest;
use serde::{Deserialize, Serialize};
use ticketing_engine::Nanos;

use crate::types::{Command, Entry, Types};

const MILLISECOND: Nanos = 1_000_000;

/// When a batch was proposed, on the clock of this node; or later, never earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Born(Nanos);

/// Nobody knows: now, whenever that is.
impl Default for Born {
    fn default() -> Self {
        Self(Nanos::MAX)
    }
}

impl Born {
    pub(crate) const fn at(now: Nanos) -> Self {
        Self(now)
    }

    const fn ago(now: Nanos, age_ms: u32) -> Self {
        Self(now.saturating_sub(age_ms as Nanos * MILLISECOND))
    }

    /// Rounded down.
    fn age_ms(self, now: Nanos) -> u32 {
        let too_much = if fault!(TellsThatEntriesAreOlder) { 250_000 } else { 0 };
        u32::try_from(too_much + now.saturating_sub(self.0) / MILLISECOND).unwrap_or(u32::MAX)
    }

    /// Since when its leases count, as of `now`.
    pub(crate) fn since(self, now: Nanos) -> Nanos {
        self.0.min(now)
    }

    /// That of an entry; `None`: nothing of it counts from any moment.
    pub(crate) const fn of(entry: &mut Entry) -> Option<&mut Self> {
        match &mut entry.payload {
            EntryPayload::Normal(Command::Batch { born, .. }) => Some(born),
            EntryPayload::Normal(Command::Office { .. } | Command::Seat { .. })
            | EntryPayload::Membership(_)
            | EntryPayload::Blank => None,
        }
    }
}

/// Entries on their way to another node, and how old they are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    request: AppendEntriesRequest<Types>,
    /// Of each batch among them, in milliseconds: most are a byte long.
    ages_ms: Vec<u32>,
}

impl Append {
    /// As of `now`, when they are sent.
    pub(crate) fn new(mut request: AppendEntriesRequest<Types>, now: Nanos) -> Self {
        let batches = request.entries.iter_mut().filter_map(Born::of);
        let ages_ms = batches.map(|born| born.age_ms(now)).collect();
        Self { request, ages_ms }
    }

    /// As they are noted by a node to which they came at `now`.
    pub(crate) fn arrived(self, now: Nanos) -> Result<AppendEntriesRequest<Types>, String> {
        let Self { mut request, ages_ms } = self;
        let mut ages = ages_ms.iter();
        for born in request.entries.iter_mut().filter_map(Born::of) {
            *born = Born::ago(now, *ages.next().ok_or("an entry comes without its age")?);
        }
        if ages.next().is_some() { Err("an age comes without its entry".to_owned()) } else { Ok(request) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use ticketing_engine::SECOND;

    use super::*;
    use crate::calls::{decode, encode};
    use crate::types::{LogId, Vote};

    fn entry(index: u64, command: Option<Command>) -> Entry {
        let payload = command.map_or(EntryPayload::Blank, EntryPayload::Normal);
        Entry { log_id: LogId::new(1.into(), index), payload }
    }

    fn batch(index: u64, born: Born) -> Entry {
        let record = Bytes::from_static(b"record");
        entry(index, Some(Command::Batch { term: 1, run: 1, seq: index, record, born }))
    }

    fn request(entries: Vec<Entry>) -> AppendEntriesRequest<Types> {
        AppendEntriesRequest { vote: Vote::new(1, 1), prev_log_id: None, entries, leader_commit: None }
    }

    /// Sent at one time of the sender's clock, arrived at one of the receiver's.
    fn sent(entries: Vec<Entry>, from: Nanos, to: Nanos) -> Vec<Entry> {
        let bytes = encode(&Append::new(request(entries), from));
        decode::<Append>(&bytes).unwrap().arrived(to).unwrap().entries
    }

    fn since(entry: &mut Entry, now: Nanos) -> Nanos {
        Born::of(entry).unwrap().since(now)
    }

    #[test]
    fn the_age_goes_along_whatever_stands_between() {
        let office = Command::Office { term: 1, run: 1, first_token: 1 };
        let entries = vec![
            entry(1, None),
            batch(2, Born::at(10 * SECOND)),
            entry(3, Some(office)),
            batch(4, Born::at(17 * SECOND)),
            batch(5, Born::default()),
        ];
        let mut entries = sent(entries, 20 * SECOND, 5_000 * SECOND);
        let now = 6_000 * SECOND;
        assert_eq!(since(&mut entries[1], now), 4_990 * SECOND);
        assert_eq!(since(&mut entries[3], now), 4_997 * SECOND);
        assert_eq!(
            since(&mut entries[4], now),
            5_000 * SECOND,
            "whose age nobody knows came into being there"
        );
    }

    #[test]
    fn of_what_nobody_knows_a_lease_counts_from_now() {
        assert_eq!(Born::default().since(7), 7);
        assert_eq!(Born::at(5).since(7), 5);
        assert_eq!(Born::default().age_ms(u64::MAX - 1), 0);
    }

    #[test]
    fn ages_that_do_not_fit_the_entries_are_refused() {
        let entries = || vec![entry(1, None), batch(2, Born::at(1))];
        for (ages_ms, fits) in [(vec![], false), (vec![1], true), (vec![1, 2], false)] {
            let append = Append { request: request(entries()), ages_ms };
            assert_eq!(append.arrived(SECOND).is_ok(), fits);
        }
    }

    /// Where an entry is on the disk, or on the way, there is nothing of this node's clock in it.
    #[test]
    fn an_instant_never_leaves_its_node() {
        let (known, unknown) = (encode(&batch(1, Born::at(12_345))), encode(&batch(1, Born::default())));
        assert_eq!(known, unknown);
        let mut read = decode::<Entry>(&known).unwrap();
        assert_eq!(Born::of(&mut read), Some(&mut Born::default()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Over any number of nodes, none counts a lease from before its proposal, and
        /// none from later than what passed on the way, and a millisecond for each node.
        #[test]
        fn never_early_and_late_by_the_way_alone(
            hops in prop::collection::vec((0..400 * SECOND, 0..3 * SECOND, 0..u64::MAX / 2), 1..6),
        ) {
            // In true time; the clock of each node shows that and `shown` more.
            let (mut now, mut shown, mut entries) = (1_000 * SECOND, 0, vec![batch(1, Born::at(1_000 * SECOND))]);
            let mut ways = 0;
            for (count, (kept, way, next_shown)) in hops.into_iter().enumerate() {
                let leaves = now + kept;
                now = leaves + way;
                entries = sent(entries, leaves + shown, now + next_shown);
                (shown, ways) = (next_shown, ways + way);
                let since = since(&mut entries[0], now + shown) - shown;
                prop_assert!(since >= 1_000 * SECOND, "early by {}", 1_000 * SECOND - since);
                prop_assert!(since <= 1_000 * SECOND + ways + (count as u64 + 1) * MILLISECOND);
            }
        }
    }
}
