//! Tables as bytes.

use proptest::prelude::*;
use ticketing_engine::{Effect, SECOND, Table};

use crate::{hex, unhex};

const TOKEN: u64 = 0x0102_0304_0506_0708;

/// "seat:12" is held, and there is a tombstone.
fn table() -> Table {
    let mut table = Table::new([1, 2]);
    let effects = [
        Effect::Grant { key: b"seat:12", owner: 7, token: TOKEN, lease_secs: 10 },
        Effect::Bury { key: "قفل".as_bytes(), owner: 9 },
    ];
    table.apply(100 * SECOND, effects[0]).unwrap();
    table.apply(101 * SECOND + SECOND / 2, effects[1]).unwrap();
    table
}

fn write(table: &Table, now: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write(now, &mut bytes);
    bytes
}

fn read(bytes: &[u8]) -> Result<Table, String> {
    Table::read(1_000 * SECOND, [3, 4], bytes).map_err(|bad| bad.to_string())
}

/// With the right checksum, so that what is behind it is tried.
fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&content);
    content.extend_from_slice(&checksum.to_le_bytes());
    content
}

fn content(table: &Table) -> Vec<u8> {
    let mut bytes = write(table, 103 * SECOND);
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// Written down by hand, after the description in the source. Nodes of other builds
/// write and read exactly this, and compare these hashes.
#[test]
fn snapshots_and_hashes_are_what_they_always_were() {
    let empty = Table::new([5, 6]);
    assert_eq!(empty.hash(), 0x2849_17d0_b1b7_871f);
    let bytes = "0100000000000000001f87b7b1d017492800000000000000000000000000000000f7144aba";
    assert_eq!(hex(&write(&empty, 7)), bytes);
    assert_eq!(read(&unhex(bytes)).unwrap().hash(), empty.hash());

    let table = table();
    assert_eq!(table.hash(), 0xa6ae_1c1b_d821_1c0c);
    let bytes = "0108070605040302010c1c21d81b1caea601000000000000000100000000000000\
                 005ed0b200000000070000000000000008070605040302010a07000000736561743a3132\
                 002f685900000000090000000000000006000000d982d981d984\
                 3a28d9a6";
    assert_eq!(hex(&write(&table, 103 * SECOND)), bytes);
    assert_eq!(read(&unhex(bytes)).unwrap().hash(), table.hash());
}

#[test]
fn what_has_elapsed_goes_on_elapsing_and_nothing_else_is_lost() {
    let mut table = Table::new([1, 2]);
    table.apply(100, Effect::Grant { key: b"a", owner: 1, token: 7, lease_secs: 10 }).unwrap();
    table.apply(130, Effect::Grant { key: b"b", owner: 2, token: 8, lease_secs: 250 }).unwrap();
    table.apply(160, Effect::Bury { key: b"b", owner: 3 }).unwrap();
    table.apply(161, Effect::Release { key: b"a", token: 7 }).unwrap();
    table.apply(162, Effect::Grant { key: b"a", owner: 4, token: 9, lease_secs: 1 }).unwrap();
    table.apply(163, Effect::Release { key: b"a", token: 9 }).unwrap();
    let mut bytes = b"before".to_vec();
    table.write(170, &mut bytes);
    let bytes = bytes.strip_prefix(b"before").unwrap();

    let read = Table::read(5_070, [3, 4], bytes).unwrap();
    assert_eq!((read.hash(), read.next_token()), (table.hash(), 10));
    let held = read.locks().collect::<Vec<_>>();
    let [held] = held[..] else { panic!("{held:?}") };
    assert_eq!(
        (held.key, held.owner, held.token, held.lease_secs, held.since),
        (b"b".as_slice(), 2, 8, 250, 5_030)
    );
    let buried = read.tombstones().collect::<Vec<_>>();
    let [buried] = buried[..] else { panic!("{buried:?}") };
    assert_eq!((buried.key, buried.owner, buried.since), (b"b".as_slice(), 3, 5_060));
}

/// Later is safe, earlier is not.
#[test]
fn what_was_before_the_clock_began_counts_from_its_beginning() {
    let bytes = write(&table(), 103 * SECOND);
    let read = Table::read(2 * SECOND, [3, 4], &bytes).unwrap();
    assert_eq!(read.get(b"seat:12").unwrap().since, 0, "3 seconds ago");
    assert_eq!(read.tombstones().next().unwrap().since, SECOND / 2);
    // And what seems to lie ahead was just applied.
    let bytes = write(&table(), 99 * SECOND);
    assert_eq!(read_at(7 * SECOND, &bytes), 7 * SECOND);
}

fn read_at(now: u64, bytes: &[u8]) -> u64 {
    Table::read(now, [3, 4], bytes).unwrap().get(b"seat:12").unwrap().since
}

#[test]
fn damage_at_any_bit_or_a_cut_at_any_byte_is_found() {
    let bytes = write(&table(), 103 * SECOND);
    for len in 0..bytes.len() {
        read(&bytes[..len]).expect_err("cut short");
    }
    for len in 0..bytes.len() - 4 {
        let sealed = sealed(bytes[..len].to_vec());
        read(&sealed).expect_err("cut short before it was sealed");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        read(&damaged).expect_err("damaged");
    }
}

#[test]
fn what_is_no_snapshot_is_refused_and_the_error_names_the_place() {
    let good = content(&table());
    let with = |at: usize, bytes: &[u8]| {
        let mut content = good.clone();
        content[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(content)
    };
    let (lock, tombstone) = (33..69, 69..95);
    let two_of = |count_at: usize, part: std::ops::Range<usize>| {
        let mut content = good.clone();
        content[count_at] = 2;
        let entry = content[part.clone()].to_vec();
        content.splice(part.end..part.end, entry);
        sealed(content)
    };
    let mut goes_on = good.clone();
    goes_on.push(0);
    let mut of_the_holder = good.clone();
    of_the_holder.truncate(tombstone.start);
    of_the_holder.extend_from_slice(&[0; 8]);
    of_the_holder.extend_from_slice(&7u64.to_le_bytes());
    of_the_holder.extend_from_slice(b"\x07\0\0\0seat:12");
    let cases = [
        (Vec::new(), "snapshot, byte 0: it is cut short here"),
        (with(0, &[2]), "snapshot, byte 0: it is of version 2, this build reads 1"),
        (with(0, &[0]), "snapshot, byte 0: it is of version 0, this build reads 1"),
        (vec![1], "snapshot, byte 0: the checksum is wrong"),
        (write(&table(), 1)[..50].to_vec(), "snapshot, byte 46: the checksum is wrong"),
        (sealed(good[..30].to_vec()), "snapshot, byte 0: it is cut short here"),
        (sealed(good[..60].to_vec()), "snapshot, byte 33: it is cut short here"),
        (sealed(good[..80].to_vec()), "snapshot, byte 69: it is cut short here"),
        (with(17, &[0xff; 8]), "snapshot, byte 69: it is cut short here"),
        (with(25, &[0xff; 8]), "snapshot, byte 95: it is cut short here"),
        (with(17, &[0]), "snapshot, byte 33: it is cut short here"),
        (with(25, &[0]), "snapshot, byte 69: it goes on behind its end"),
        (sealed(goes_on), "snapshot, byte 95: it goes on behind its end"),
        (with(1, &[7]), "snapshot, byte 33: a lock is held under a token that was never given out"),
        (with(49, &[0; 8]), "snapshot, byte 33: a lock is held under a token that was never given out"),
        (two_of(17, lock), "snapshot, byte 69: a key is held a second time"),
        (two_of(25, tombstone), "snapshot, byte 95: a tombstone comes a second time, or of a holder"),
        (sealed(of_the_holder), "snapshot, byte 69: a tombstone comes a second time, or of a holder"),
        (with(57, &[11]), "snapshot, byte 0: its content does not add up to its hash"),
        (with(1, &[9]), "snapshot, byte 0: its content does not add up to its hash"),
    ];
    for (number, (bytes, why)) in cases.into_iter().enumerate() {
        assert_eq!(read(&bytes).map(|table| table.hash()), Err(why.to_owned()), "case {number}");
    }
}

/// Whatever can be read is a table that can be written again.
fn assert_sound(bytes: &[u8]) {
    if let Ok(table) = Table::read(1_000 * SECOND, [3, 4], bytes) {
        let again = Table::read(0, [5, 6], &write(&table, 0)).unwrap();
        assert_eq!(
            (again.hash(), again.held(), again.buried()),
            (table.hash(), table.held(), table.buried())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..3], 0..200)) {
        assert_sound(&bytes);
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        assert_sound(&sealed(bytes));
    }

    #[test]
    fn a_snapshot_that_was_changed_before_it_was_sealed_is_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut content = content(&table());
        for (at, byte) in damage {
            let at = at.index(content.len());
            content[at] = byte;
        }
        content.truncate(cut.index(content.len() + 1));
        assert_sound(&sealed(content));
    }
}
