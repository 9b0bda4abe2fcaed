//! Every golden vector is read and written again. The files hold for every
//! language; `vectors/README.md` says how to read them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(unreachable_pub, reason = "shared with another test crate")]
mod common;
#[path = "../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod fuzz;

use std::fmt::Debug;

use common::{Frames, FromClient, FromServer, Handshake, StreamVector, Streams, extension, load};
use fuzz::{Side, check_stream, kind_of};
use ticketing_protocol::handshake::{
    BadHandshake, Domain, Greeting, Response, digest, encode_response, nonce,
};
use ticketing_protocol::{ClientToServer, Decoder, Extension, Malformed, Reason, ServerToClient};

#[test]
fn client_frames() {
    let file: Frames<FromClient> = load("client_frames.json");
    assert_eq!(file.direction, "client_to_server");
    for vector in &file.frames {
        let frame = vector.frame.frame();
        check_frame::<ClientToServer>(&vector.name, vector.extension, &vector.bytes.0, frame);
    }
    assert_every_op::<ClientToServer>(file.frames.iter().map(|vector| vector.bytes.0[0]));
}

#[test]
fn server_frames() {
    let file: Frames<FromServer> = load("server_frames.json");
    assert_eq!(file.direction, "server_to_client");
    for vector in &file.frames {
        let frame = vector.frame.frame();
        check_frame::<ServerToClient>(&vector.name, vector.extension, &vector.bytes.0, frame);
    }
    assert_every_op::<ServerToClient>(file.frames.iter().map(|vector| vector.bytes.0[0]));
    for reason in Reason::ALL {
        let written = format!("E{reason}\n").into_bytes();
        assert!(file.frames.iter().any(|vector| vector.bytes.0 == written), "no vector with {reason}");
    }
}

fn check_frame<D: Side>(name: &str, needs_extension: bool, bytes: &[u8], expected: D::Frame<'_>)
where
    for<'a> D::Frame<'a>: Debug,
{
    let expected_text = format!("{expected:?}");
    assert_eq!(D::written(expected), bytes, "{name}: written");
    for extension in [Extension::Off, Extension::On] {
        let mut seen = Vec::new();
        let outcome = Decoder::<D>::new(extension).feed(bytes, |frame| seen.push(format!("{frame:?}")));
        if needs_extension && extension == Extension::Off {
            assert_eq!(outcome, Err(Malformed::BadOp(bytes[0])), "{name}: without the extension");
        } else {
            assert_eq!((outcome, seen), (Ok(()), vec![expected_text.clone()]), "{name}: read");
        }
    }
}

fn assert_every_op<D: Side>(ops: impl Iterator<Item = u8>) {
    let ops: Vec<u8> = ops.collect();
    for (op, ..) in D::OPS {
        assert!(ops.contains(op), "no vector with op {}", char::from(*op));
    }
}

#[test]
fn client_streams() {
    let file: Streams<FromClient> = load("client_streams.json");
    assert_eq!(file.direction, "client_to_server");
    for vector in &file.streams {
        let frames: Vec<_> = vector.frames.iter().map(|frame| format!("{:?}", frame.frame())).collect();
        check_stream_vector::<ClientToServer, _>(vector, &frames);
        // Towards a client the kind is the reason of the E frame.
        let mut decoder = Decoder::<ClientToServer>::new(extension(vector.extension));
        let reason = decoder.feed(&vector.bytes.0, |_| ()).err().map(|malformed| malformed.reason().as_str());
        assert_eq!(reason, vector.malformed.as_ref().map(|verdict| verdict.kind.as_str()), "{}", vector.name);
    }
    assert_every_kind(["bad_key", "bad_lease", "bad_op", "line_too_long"], &file.streams);
}

#[test]
fn server_streams() {
    let file: Streams<FromServer> = load("server_streams.json");
    assert_eq!(file.direction, "server_to_client");
    for vector in &file.streams {
        let frames: Vec<_> = vector.frames.iter().map(|frame| format!("{:?}", frame.frame())).collect();
        check_stream_vector::<ServerToClient, _>(vector, &frames);
    }
    assert_every_kind(["bad_key", "bad_op", "bad_text", "line_too_long"], &file.streams);
}

fn check_stream_vector<D: Side, F>(vector: &StreamVector<F>, expected: &[String])
where
    for<'a> D::Frame<'a>: Debug,
{
    let name = &vector.name;
    let extension = extension(vector.extension);
    let mut decoder = Decoder::<D>::new(extension);
    let mut seen = Vec::new();
    let mut verdict = None;
    for (index, byte) in vector.bytes.0.iter().enumerate() {
        let outcome = decoder.feed(&[*byte], |frame| seen.push(format!("{frame:?}")));
        if let Err(malformed) = outcome {
            verdict = Some((kind_of(malformed), index + 1));
            break;
        }
    }
    assert_eq!(seen, expected, "{name}");
    let expected_verdict = vector.malformed.as_ref().map(|verdict| (verdict.kind.as_str(), verdict.at));
    assert_eq!(verdict, expected_verdict, "{name}");
    assert_eq!(vector.mid_frame.is_some(), verdict.is_none(), "{name}: one of malformed and mid_frame");
    if let Some(mid_frame) = vector.mid_frame {
        assert_eq!(decoder.is_mid_frame(), mid_frame, "{name}");
    }
    for cut in 0..=vector.bytes.0.len() {
        check_stream::<D>(extension, &vector.bytes.0, [cut]);
    }
}

fn assert_every_kind<const N: usize, F>(expected: [&str; N], vectors: &[StreamVector<F>]) {
    let mut kinds: Vec<&str> =
        vectors.iter().filter_map(|v| Some(v.malformed.as_ref()?.kind.as_str())).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, expected);
}

#[test]
fn digests_and_nonces() {
    let file: Handshake = load("handshake.json");
    for vector in &file.digests {
        assert_eq!(digest(&vector.token.0, &vector.nonce), vector.digest, "{}", vector.name);
    }
    for vector in &file.nonces {
        let random: [u8; 16] = vector.random.0.as_slice().try_into().unwrap();
        assert_eq!(nonce(random), vector.nonce);
    }
}

#[test]
fn greetings() {
    let file: Handshake = load("handshake.json");
    for vector in &file.greetings {
        let name = &vector.name;
        let read = Greeting::parse(&vector.line.0);
        if let Some(error) = &vector.error {
            assert_eq!(read.map_err(error_of), Err(error.as_str()), "{name}");
            continue;
        }
        let fields = vector.greeting.as_ref().unwrap();
        let expected = Greeting {
            domain: fields.domain.as_ref().map(|digits| Domain::parse(digits).unwrap()),
            node: fields.node.map(|node| node.0),
            own_address: fields.own_address.as_deref(),
            extension: fields.extension,
            nonce: &fields.nonce,
        };
        assert_eq!(read, Ok(expected.clone()), "{name}");
        let mut line = Vec::new();
        expected.encode(&mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(line == vector.line.0, vector.written.unwrap(), "{name}: written");
    }
}

#[test]
fn responses() {
    let file: Handshake = load("handshake.json");
    for vector in &file.responses {
        let name = &vector.name;
        let read = Response::parse(&vector.line.0);
        if let Some(error) = &vector.error {
            assert_eq!(read.map(|_| ()).map_err(error_of), Err(error.as_str()), "{name}");
            continue;
        }
        let response = read.unwrap();
        assert_eq!(response.proves(&vector.token.0, &vector.nonce), vector.proves.unwrap(), "{name}");
        assert_eq!(response.extension, vector.extension.unwrap(), "{name}");
        let mut line = Vec::new();
        encode_response(&vector.token.0, &vector.nonce, response.extension, &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(line == vector.line.0, vector.written.unwrap(), "{name}: written");
    }
}

fn error_of(error: BadHandshake) -> &'static str {
    match error {
        BadHandshake::TooLong { .. } => "too_long",
        BadHandshake::NotAGreeting => "not_a_greeting",
        BadHandshake::UnknownVersion => "unknown_version",
        BadHandshake::BadField(_) => "bad_field",
        BadHandshake::BadResponse => "bad_response",
    }
}
