//! Tables as bytes.

use ticketing_engine::{Effect, Table};

#[test]
fn a_table_comes_back_with_what_has_elapsed() {
    let mut table = Table::new([1, 2]);
    table.apply(100, Effect::Grant { key: b"a", owner: 1, token: 7, lease_secs: 10 }).unwrap();
    table.apply(130, Effect::Grant { key: b"b", owner: 2, token: 8, lease_secs: 250 }).unwrap();
    table.apply(160, Effect::Bury { key: b"b", owner: 3 }).unwrap();
    let mut bytes = b"before".to_vec();
    table.write(170, &mut bytes);
    let read = Table::read(5_070, [3, 4], &bytes[6..]).unwrap();
    assert_eq!((read.hash(), read.next_token()), (table.hash(), 9));
    assert_eq!(read.get(b"a").unwrap().applied_at, 5_000);
    assert_eq!(read.get(b"b").unwrap().applied_at, 5_030);
    assert_eq!(read.tombstones().map(|it| it.applied_at).collect::<Vec<_>>(), [5_060]);
}
