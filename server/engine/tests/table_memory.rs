//! What the applied table costs. One test to the process, as it counts every byte
//! that the process has.
#![allow(clippy::unwrap_used)]

use peak_alloc::PeakAlloc;
use ticketing_engine::{Effect, Table};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const MOST: u64 = 1_000_000;
/// Bytes that one held lock with a key of 8 bytes may cost.
const LOCK: usize = 200;
/// Bytes that a table may keep for what comes next.
const KEPT: usize = 1 << 18;

fn used(before: usize) -> usize {
    ALLOCATED.current_usage().saturating_sub(before)
}

fn grant(key: &[u8], token: u64) -> Effect<'_> {
    Effect::Grant { key, owner: token, token, lease_secs: 10 }
}

#[test]
fn a_lock_costs_little_a_copy_nothing_and_what_is_over_nothing() {
    let before = ALLOCATED.current_usage();
    let mut table = Table::new([1, 2]);
    assert!(used(before) < KEPT, "an empty table uses {} bytes", used(before));
    ALLOCATED.reset_peak_usage();

    for token in 1..=MOST {
        table.apply(0, grant(&token.to_be_bytes(), token)).unwrap();
        if token % 50_000 == 0 {
            let each = used(before) / usize::try_from(token).unwrap();
            assert!(each <= LOCK, "{each} bytes for each of {token} locks");
            assert!(each >= 60, "{each} bytes for each of {token} locks: the counting is off");
        }
    }

    let full = used(before);
    let copy = table.clone();
    assert!(used(before) - full < KEPT, "a copy uses {} bytes", used(before) - full);
    table.apply(0, Effect::Release { key: &1u64.to_be_bytes(), token: 1 }).unwrap();
    let one_write = used(before) - full;
    assert!(one_write < full / 100, "a copy and one write use {one_write} bytes, the table {full}");
    drop(copy);

    for token in 2..=MOST {
        table.apply(0, Effect::Bury { key: &token.to_be_bytes(), owner: 0 }).unwrap();
        table.apply(0, Effect::Release { key: &token.to_be_bytes(), token }).unwrap();
        table.apply(0, Effect::Forget { key: &token.to_be_bytes(), owner: 0 }).unwrap();
    }
    assert_eq!((table.held(), table.buried()), (0, 0));
    assert!(used(before) < KEPT, "{} bytes are left of {full}", used(before));
}
