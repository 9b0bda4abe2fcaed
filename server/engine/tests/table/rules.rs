//! What fits the table, what does not, and what it adds up to.

use ticketing_engine::{Effect, Table};

const K: &[u8] = b"k";

fn grant(key: &[u8], owner: u64, token: u64) -> Effect<'_> {
    Effect::Grant { key, owner, token, lease_secs: 10 }
}

fn hand_off(key: &[u8], ended: u64, owner: u64, token: u64) -> Effect<'_> {
    Effect::HandOff { key, ended, expired: false, owner, token, lease_secs: 20 }
}

/// K is held by owner 1 under token 5, and owner 9 never gets it.
fn table() -> Table {
    let mut table = Table::new([1, 2]);
    table.apply_batch(3, [grant(K, 1, 5), Effect::Bury { key: K, owner: 9 }].into_iter()).unwrap();
    table
}

/// All that a table holds, times included.
fn content(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write(1_000, &mut bytes);
    bytes
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_changes_nothing() {
    let cases: [(Effect<'_>, &str); 16] = [
        (grant(K, 2, 6), "key \"k\" is granted under token 6, but is held under 5"),
        (grant(b"other", 2, 5), "key \"other\" is granted under token 5, but token 5 was given out before"),
        (grant(b"other", 2, 0), "key \"other\" is granted under token 0, but token 5 was given out before"),
        (Effect::Release { key: K, token: 4 }, "key \"k\" is taken from token 4, but is held under 5"),
        (Effect::Release { key: b"x", token: 5 }, "key \"x\" is taken from token 5, but is not held"),
        (Effect::Expire { key: K, token: 6 }, "key \"k\" is taken from token 6, but is held under 5"),
        (Effect::Expire { key: b"x", token: 5 }, "key \"x\" is taken from token 5, but is not held"),
        (hand_off(K, 4, 2, 6), "key \"k\" is taken from token 4, but is held under 5"),
        (hand_off(b"x", 5, 2, 6), "key \"x\" is taken from token 5, but is not held"),
        (hand_off(K, 5, 2, 5), "key \"k\" is granted under token 5, but token 5 was given out before"),
        (hand_off(K, 5, 9, 6), "key \"k\" is granted to owner 9 under token 6, who was said to never get it"),
        (Effect::Bury { key: K, owner: 9 }, "key \"k\" gets a second tombstone of owner 9"),
        (
            Effect::Bury { key: K, owner: 1 },
            "key \"k\" gets a tombstone of owner 1, who holds it under token 5",
        ),
        (Effect::Forget { key: K, owner: 1 }, "key \"k\" loses a tombstone of owner 1, which is not there"),
        (
            Effect::Forget { key: b"\xd9\x85\n", owner: 9 },
            "key \"\u{645}\\n\" loses a tombstone of owner 9, which is not there",
        ),
        (
            Effect::Release { key: b"\xff", token: 1 },
            "key \"\u{fffd}\" is taken from token 1, but is not held",
        ),
    ];
    for (effect, why) in cases {
        let mut table = table();
        let before = content(&table);
        let violation = table.apply(4, effect).expect_err(why);
        assert_eq!(violation.to_string(), format!("effect 0 of its batch does not fit the table: {why}"));
        assert_eq!(content(&table), before);
    }
}

#[test]
fn a_free_key_is_not_granted_to_an_owner_with_a_tombstone() {
    let mut table = table();
    table.apply(4, Effect::Release { key: K, token: 5 }).unwrap();
    let violation = table.apply(5, grant(K, 9, 6)).unwrap_err().to_string();
    assert!(
        violation.ends_with("key \"k\" is granted to owner 9 under token 6, who was said to never get it")
    );
    table.apply(6, Effect::Forget { key: K, owner: 9 }).unwrap();
    table.apply(7, grant(K, 9, 6)).unwrap();
}

#[test]
fn a_batch_ends_at_the_first_effect_that_does_not_fit() {
    let mut table = table();
    let effects = [grant(b"a", 1, 6), grant(b"a", 1, 7), grant(b"b", 1, 8)];
    let violation = table.apply_batch(4, effects.into_iter()).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "effect 1 of its batch does not fit the table: key \"a\" is granted under token 7, but is held under 6"
    );
}

#[test]
fn a_lease_counts_from_the_grant_and_from_each_hand_off() {
    let mut table = table();
    let held = |table: &Table| table.get(K).map(|held| (held.owner, held.token, held.lease_secs, held.since));
    assert_eq!(held(&table), Some((1, 5, 10, 3)));
    table.apply(40, hand_off(K, 5, 2, 8)).unwrap();
    assert_eq!(held(&table), Some((2, 8, 20, 40)));
    table.apply(50, Effect::Expire { key: K, token: 8 }).unwrap();
    assert_eq!((held(&table), table.held()), (None, 0));
    assert_eq!((table.next_token(), table.last_token()), (9, 8), "tokens are never given twice");
}

#[test]
fn the_last_token_of_all_is_granted_and_none_after_it() {
    let mut table = Table::new([0; 2]);
    table.apply(0, grant(K, 1, u64::MAX)).unwrap();
    assert_eq!((table.last_token(), table.next_token()), (u64::MAX, u64::MAX));
    assert!(table.apply(0, grant(b"other", 1, u64::MAX)).is_err());
}

#[test]
fn a_clone_stays_as_it_was() {
    let mut table = table();
    let clone = table.clone();
    table.apply(8, hand_off(K, 5, 2, 6)).unwrap();
    table.apply(8, Effect::Forget { key: K, owner: 9 }).unwrap();
    assert_eq!(clone.get(K).map(|held| held.token), Some(5));
    assert_eq!((clone.is_buried(9, K), table.is_buried(9, K)), (true, false));
    assert_ne!(clone.hash(), table.hash());
}

/// Two tables that differ in anything but times do not have the same hash.
#[test]
fn everything_but_time_is_in_the_hash() {
    let of = |now, effects: &[Effect<'_>]| {
        let mut table = Table::new([now, 7]);
        table.apply_batch(now, effects.iter().copied()).unwrap();
        table.hash()
    };
    let plain = [grant(K, 1, 5)];
    assert_eq!(of(0, &plain), of(99, &plain));
    let different: [&[Effect<'_>]; 9] = [
        &[],
        &plain,
        &[grant(b"kk", 1, 5)],
        &[grant(K, 2, 5)],
        &[grant(K, 1, 6)],
        &[Effect::Grant { key: K, owner: 1, token: 5, lease_secs: 11 }],
        &[grant(K, 1, 5), Effect::Release { key: K, token: 5 }],
        &[grant(K, 1, 5), Effect::Bury { key: K, owner: 2 }],
        &[grant(K, 1, 5), Effect::Bury { key: b"kk", owner: 2 }],
    ];
    let hashes = different.iter().map(|effects| of(1, effects)).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(hashes.len(), different.len());
}
