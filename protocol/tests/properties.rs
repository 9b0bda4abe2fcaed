//! What holds for every stream, however it is made and however it is cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod fuzz;

use fuzz::{Side, check_stream};
use proptest::collection::vec;
use proptest::prelude::*;
use ticketing_protocol::{
    ClientFrame, ClientToServer, Decoder, Extension, Key, Reason, ServerFrame, ServerToClient,
};

/// Numbers, most of them where readers go wrong.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        Just(0x0a0a_0a0a_0a0a_0a0a),
        Just((1 << 53) + 1),
        Just(1 << 63),
    ]
}

/// Any legal key, up to the longest.
fn key() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("legal in a key", |letter| ![' ', '\n', '\r'].contains(letter)), 1..128)
        .prop_map(|letters| {
            let mut key = String::new();
            for letter in letters {
                if key.len() + letter.len_utf8() <= 128 {
                    key.push(letter);
                }
            }
            key
        })
}

fn client_frame() -> impl Strategy<Value = Vec<u8>> {
    (0..5, any::<u8>(), 1..=250_u8, number(), key()).prop_map(|(op, wait, lease, number, key)| {
        let key = Key::new(&key).unwrap();
        round_trip(match op {
            0 => ClientFrame::Acquire { wait, lease, owner: number, key },
            1 => ClientFrame::Release { token: number, key },
            2 => ClientFrame::Cancel { owner: number, key },
            3 => ClientFrame::Place { owner: number, key },
            _ => ClientFrame::Verify { owner: number, key },
        })
    })
}

/// `decode(encode(frame)) == frame`; gives the bytes.
fn round_trip(frame: ClientFrame<'_>) -> Vec<u8> {
    let bytes = ClientToServer::written(frame);
    let mut count = 0;
    let read = Decoder::<ClientToServer>::new(Extension::On).feed(&bytes, |seen| {
        assert_eq!(seen, frame);
        count += 1;
    });
    assert_eq!((read, count), (Ok(()), 1));
    bytes
}

fn server_frame() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![Just(String::new()), "[^\n]{0,47}", "h{186,186}:5225"];
    let reason = prop_oneof![
        prop::sample::select(&Reason::ALL[..]).prop_map(|reason| reason.to_string()),
        "[a-z_]{1,191}"
    ];
    (0..10, number(), number(), any::<u32>(), any::<u32>(), key(), address, reason).prop_map(
        |(op, token, owner, first, second, key, address, reason)| {
            let key = Key::new(&key).unwrap();
            round_trip_back(match op {
                0 => ServerFrame::Granted { token, owner, key },
                1 => ServerFrame::GrantedUntil { token, owner, ends_ms: first, key },
                2 => ServerFrame::TimedOut { owner, key },
                3 => ServerFrame::Busy { owner, key },
                4 => ServerFrame::Released { token, key },
                5 => ServerFrame::NotHeld { token, key },
                6 => ServerFrame::Place { owner, place: first, waiters: second, key },
                7 => ServerFrame::Moved { address: &address },
                8 => ServerFrame::Leader { address: &address },
                _ => ServerFrame::Error { reason: &reason },
            })
        },
    )
}

fn round_trip_back(frame: ServerFrame<'_>) -> Vec<u8> {
    let bytes = ServerToClient::written(frame);
    let mut count = 0;
    let read = Decoder::<ServerToClient>::new(Extension::On).feed(&bytes, |seen| {
        assert_eq!(seen, frame);
        count += 1;
    });
    assert_eq!((read, count), (Ok(()), 1));
    bytes
}

/// A stream of legal frames and keep-alives, of garbage, or of both; sometimes
/// with single bytes changed, lost or doubled.
fn stream(frame: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    let garbage = vec(any::<u8>(), 0..300);
    let near_frame = (prop::sample::select(&b"ARCPVGTBNMLE"[..]), vec(any::<u8>(), 0..220))
        .prop_map(|(op, rest)| [&[op][..], &rest, b"\n"].concat());
    let part = prop_oneof![6 => frame, 2 => Just(b"\n".to_vec()), 1 => near_frame, 1 => garbage];
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3);
    (vec(part, 0..8), prop_oneof![2 => Just(Vec::new()), 1 => vec(change, 1..4)]).prop_map(
        |(parts, changes)| {
            let mut stream = parts.concat();
            for (place, byte, kind) in changes {
                if stream.is_empty() {
                    break;
                }
                let at = place.index(stream.len());
                match kind {
                    0 => stream[at] = byte,
                    1 => drop(stream.remove(at)),
                    _ => stream.insert(at, stream[at]),
                }
            }
            stream
        },
    )
}

fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![1 => Just(Extension::Off), 2 => Just(Extension::On)]
}

/// Lengths of pieces; the last piece is what is left.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![0..4_usize, 0..200_usize], 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_split_of_a_client_stream_reads_alike(
        extension in extension(), bytes in stream(client_frame()), cuts in cuts(),
    ) {
        check_stream::<ClientToServer>(extension, &bytes, cuts);
    }

    #[test]
    fn any_split_of_a_server_stream_reads_alike(
        extension in extension(), bytes in stream(server_frame()), cuts in cuts(),
    ) {
        check_stream::<ServerToClient>(extension, &bytes, cuts);
    }

    // Whatever comes, the reader needs no 194th byte of a frame to judge it.
    #[test]
    fn a_verdict_falls_within_193_bytes_of_a_frame(
        op in prop::sample::select(&b"ACPRV"[..]), rest in vec(any::<u8>(), 192..400),
    ) {
        let bytes = [&[op][..], &rest].concat();
        let mut frames = 0;
        let outcome =
            Decoder::<ClientToServer>::new(Extension::On).feed(&bytes[..193], |_| frames += 1);
        prop_assert!(outcome.is_err() || frames > 0);
    }
}
