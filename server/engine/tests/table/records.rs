//! Effects as bytes.

use ticketing_engine::{Effect, record};

const ALL: [Effect<'static>; 7] = [
    Effect::Grant { key: b"k", owner: 2, token: 3, lease_secs: 10 },
    Effect::Release { key: b"k", token: 3 },
    Effect::Expire { key: b"k", token: 0x0102_0304_0506_0708 },
    Effect::HandOff { key: b"k", ended: 3, expired: false, owner: 5, token: 4, lease_secs: 250 },
    Effect::HandOff { key: b"k", ended: 3, expired: true, owner: 5, token: u64::MAX, lease_secs: 1 },
    Effect::Bury { key: b"", owner: 9 },
    Effect::Forget { key: b"\xd9\x85", owner: 9 },
];

fn encode(effects: &[Effect<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(effects.iter().copied(), &mut bytes);
    bytes
}

#[test]
fn all_effects_come_back() {
    assert!(record::decode(&encode(&ALL)).unwrap().eq(ALL));
}
