//! Effects as bytes.

use proptest::prelude::*;
use ticketing_engine::{Effect, record};

use crate::{hex, unhex};

const TOKEN: u64 = 0x0102_0304_0506_0708;
const KEY: &[u8] = b"seat:12";
const ARABIC: &[u8] = "قفل".as_bytes();

/// Other builds, and other nodes of this one, read and write exactly this. To change
/// one is to change the version.
const GOLDEN: [(Effect<'static>, &str); 7] = [
    (
        Effect::Grant { key: KEY, owner: 7, token: TOKEN, lease_secs: 10 },
        "010a0700000000000000080706050403020107000000736561743a3132",
    ),
    (Effect::Release { key: KEY, token: TOKEN }, "02080706050403020107000000736561743a3132"),
    (Effect::Expire { key: KEY, token: TOKEN }, "03080706050403020107000000736561743a3132"),
    (
        Effect::HandOff {
            key: KEY,
            ended: TOKEN,
            expired: false,
            owner: u64::MAX,
            token: TOKEN + 1,
            lease_secs: 250,
        },
        "040807060504030201faffffffffffffffff090706050403020107000000736561743a3132",
    ),
    (
        Effect::HandOff {
            key: KEY,
            ended: TOKEN,
            expired: true,
            owner: u64::MAX,
            token: TOKEN + 1,
            lease_secs: 250,
        },
        "050807060504030201faffffffffffffffff090706050403020107000000736561743a3132",
    ),
    (Effect::Bury { key: ARABIC, owner: 9 }, "06090000000000000006000000d982d981d984"),
    (Effect::Forget { key: ARABIC, owner: 9 }, "07090000000000000006000000d982d981d984"),
];

fn encode<'a>(effects: impl IntoIterator<Item = Effect<'a>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(effects.into_iter(), &mut bytes);
    bytes
}

#[test]
fn records_are_the_bytes_that_they_always_were() {
    let mut all = String::from("01");
    for (effect, bytes) in GOLDEN {
        assert_eq!(hex(&encode([effect])), format!("01{bytes}"));
        assert!(record::decode(&unhex(&format!("01{bytes}"))).unwrap().eq([effect]));
        all.push_str(bytes);
    }
    assert_eq!(hex(&encode(GOLDEN.map(|(effect, _)| effect))), all);
    assert!(record::decode(&unhex(&all)).unwrap().eq(GOLDEN.map(|(effect, _)| effect)));
    assert_eq!(encode([]), [1], "a barrier");
    assert_eq!(record::decode(&[1]).unwrap().next(), None);
}

#[test]
fn what_is_written_goes_behind_what_is_there() {
    let mut bytes = b"term".to_vec();
    record::encode([GOLDEN[1].0].into_iter(), &mut bytes);
    assert_eq!(bytes.strip_prefix(b"term").unwrap(), encode([GOLDEN[1].0]));
}

#[test]
fn what_is_no_record_is_refused_and_the_error_names_the_place() {
    let whole = hex(&encode([GOLDEN[1].0]));
    let cases = [
        (String::new(), "record, byte 0: it is cut short here"),
        ("00".into(), "record, byte 0: it is of version 0, this build reads 1"),
        (format!("02{}", &whole[2..]), "record, byte 0: it is of version 2, this build reads 1"),
        (format!("{whole}00"), "record, byte 21: there is no effect of kind 0"),
        (format!("{whole}08"), "record, byte 21: there is no effect of kind 8"),
        (format!("{whole}07"), "record, byte 21: it is cut short here"),
        (whole[..whole.len() - 2].to_owned(), "record, byte 1: it is cut short here"),
        // A key that is said to be longer than everything.
        ("01060900000000000000ffffffff6b".into(), "record, byte 1: it is cut short here"),
    ];
    for (bytes, why) in cases {
        assert_eq!(record::decode(&unhex(&bytes)).map(Iterator::count).unwrap_err().to_string(), why);
    }
}

#[derive(Clone, Debug)]
struct Fields {
    kind: usize,
    key: Vec<u8>,
    numbers: [u64; 3],
    lease_secs: u8,
}

impl Fields {
    fn effect(&self) -> Effect<'_> {
        let Self { kind, ref key, numbers: [owner, token, ended], lease_secs } = *self;
        match kind {
            0 => Effect::Grant { key, owner, token, lease_secs },
            1 => Effect::Release { key, token },
            2 => Effect::Expire { key, token },
            3 => Effect::HandOff { key, ended, expired: false, owner, token, lease_secs },
            4 => Effect::HandOff { key, ended, expired: true, owner, token, lease_secs },
            5 => Effect::Bury { key, owner },
            _ => Effect::Forget { key, owner },
        }
    }
}

fn effects() -> impl Strategy<Value = Vec<Fields>> {
    let fields = (0usize..7, prop::collection::vec(any::<u8>(), 0..300), any::<[u64; 3]>(), any::<u8>())
        .prop_map(|(kind, key, numbers, lease_secs)| Fields { kind, key, numbers, lease_secs });
    prop::collection::vec(fields, 0..20)
}

/// What can be read is written as the same bytes: there are no two records of one batch.
fn assert_sound(bytes: &[u8]) {
    if let Ok(effects) = record::decode(bytes) {
        assert_eq!(encode(effects), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_batch_comes_back(batch in effects()) {
        let bytes = encode(batch.iter().map(Fields::effect));
        prop_assert!(record::decode(&bytes).unwrap().eq(batch.iter().map(Fields::effect)));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..9], 0..400),
        is_of_this_version in any::<bool>(),
    ) {
        if is_of_this_version {
            bytes.insert(0, 1);
        }
        assert_sound(&bytes);
    }

    #[test]
    fn a_damaged_record_is_read_or_refused(
        batch in effects(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(batch.iter().map(Fields::effect));
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        assert_sound(&bytes);
        assert_sound(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn a_record_that_is_cut_short_is_not_read_as_another_batch(batch in effects(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(batch.iter().map(Fields::effect));
        let cut = &bytes[..cut.index(bytes.len())];
        if let Ok(read) = record::decode(cut) {
            prop_assert!(batch.iter().map(Fields::effect).zip(read).all(|(one, other)| one == other));
        }
    }
}
