//! The replicated state as a whole, and a snapshot of it as bytes.

use serde::{Deserialize, Serialize};
use ticketing_engine::{BadSnapshot, Nanos, Office, Place, Replica, Table};

use crate::calls::{decode, encode};
use crate::registry::Registry;

/// The replicated state. A clone is cheap, and what changes afterwards is copied
/// then; so a snapshot is one, and becomes bytes only when it is sent: the bytes
/// tell how much of each lease has passed.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) replica: Replica,
    pub(crate) registry: Registry,
}

/// Version of a snapshot as bytes, its first one.
const VERSION: u8 = 1;

/// What stands before the table.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    registry: Registry,
    office: Option<(u64, u64)>,
    batches: u64,
    first_token: u64,
}

/// Why bytes are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadImage {
    #[error("the snapshot is cut short")]
    Short,
    #[error(
        "the snapshot has version {0}, and this server reads only {VERSION}: it was written by a newer one"
    )]
    Version(u8),
    #[error("the snapshot's first part is damaged: {0}")]
    Head(String),
    #[error(transparent)]
    Table(#[from] BadSnapshot),
}

impl Image {
    /// As bytes, as of `now`.
    pub(crate) fn write(&self, now: Nanos) -> Vec<u8> {
        let Place { office, batches, first_token } = self.replica.place();
        let office = office.map(|office| (office.term, office.run));
        let head = encode(&Head { registry: self.registry.clone(), office, batches, first_token });
        let mut bytes = vec![VERSION];
        // A handful of seats.
        bytes.extend(u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(head);
        let empty = fault!(SnapshotsHoldNothing).then(|| Table::new([0; 2]));
        empty.as_ref().unwrap_or(self.replica.table()).write(now, &mut bytes);
        bytes
    }

    /// From bytes that arrived at `now`.
    pub(crate) fn read(now: Nanos, hash_seed: [u64; 2], bytes: &[u8]) -> Result<Self, BadImage> {
        let (&version, bytes) = bytes.split_first().ok_or(BadImage::Short)?;
        if version != VERSION {
            return Err(BadImage::Version(version));
        }
        let (head_len, bytes) = bytes.split_first_chunk().ok_or(BadImage::Short)?;
        let head_len = u32::from_le_bytes(*head_len) as usize;
        let (head, table) = bytes.split_at_checked(head_len).ok_or(BadImage::Short)?;
        let Head { registry, office, batches, first_token } = decode(head).map_err(BadImage::Head)?;
        let office = office.map(|(term, run)| Office { term, run });
        let table = Table::read(now, hash_seed, table)?;
        let replica = Replica::restore(table, Place { office, batches, first_token });
        Ok(Self { replica, registry })
    }
}

#[cfg(test)]
mod tests {
    use ticketing_engine::{Effect, SECOND, record};

    use super::*;
    use crate::types::Member;

    fn image() -> Image {
        let mut image = Image { replica: Replica::new([1, 2]), registry: Registry::default() };
        let office = Office { term: 4, run: 2 };
        assert!(image.replica.begin(4, office, 1000));
        let mut bytes = Vec::new();
        let grant = Effect::Grant { key: b"k", owner: 1, token: 1000, lease_secs: 9 };
        record::encode([grant].into_iter(), &mut bytes);
        assert!(image.replica.apply(5 * SECOND, 4, office, 1, &bytes).unwrap());
        let member = Member { slot: 1, peer: "p:1".to_owned(), client: "c:1".to_owned() };
        image.registry.seat(77, member);
        image
    }

    #[test]
    fn a_snapshot_carries_everything_and_how_much_of_a_lease_has_passed() {
        let image = image();
        let bytes = image.write(8 * SECOND);
        let read = Image::read(100 * SECOND, [3, 4], &bytes).unwrap();
        assert_eq!(read.registry, image.registry);
        assert_eq!(read.replica.place(), image.replica.place());
        assert_eq!(read.replica.table().hash(), image.replica.table().hash());
        assert_eq!(read.replica.table().get(b"k").unwrap().since, 97 * SECOND);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = image().write(8 * SECOND);
        for cut in 0..bytes.len() {
            assert!(Image::read(0, [0; 2], &bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut newer = bytes.clone();
        newer[0] = 9;
        assert_eq!(Image::read(0, [0; 2], &newer).unwrap_err(), BadImage::Version(9));
        assert!(Image::read(0, [0; 2], &[bytes, vec![0]].concat()).is_err(), "a byte too many");
    }
}
