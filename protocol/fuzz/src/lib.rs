//! What the fuzz targets check, written once: the libFuzzer targets and the
//! bounded tests of the protocol crate run the same bodies.
//!
//! The oracle of the decoder is a second reader that is slow and obvious: it
//! takes one byte at a time and never looks ahead.

use ticketing_protocol::handshake::{Domain, Greeting, Response, digest, encode_response};
use ticketing_protocol::{ClientFrame, ClientToServer, Decoder, Direction, Extension, Malformed};
use ticketing_protocol::{ServerFrame, ServerToClient};

/// Body of the target `decode_client`.
pub fn decode_client(data: &[u8]) {
    decode::<ClientToServer>(data);
}

/// Body of the target `decode_server`.
pub fn decode_server(data: &[u8]) {
    decode::<ServerToClient>(data);
}

/// The first byte says how to read the rest: its lowest bit is the extension,
/// the others choose the places where the stream is cut.
fn decode<D: Side>(data: &[u8]) {
    let Some((&how, stream)) = data.split_first() else { return };
    let extension = if how & 1 == 1 { Extension::On } else { Extension::Off };
    let mut state = u32::from(how);
    let cuts = std::iter::from_fn(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(usize::from((state >> 24) as u8))
    });
    check_stream::<D>(extension, stream, cuts);
}

/// Reads `stream` whole, byte by byte, and in pieces of the lengths `cuts`
/// (then the rest), and panics unless all agree with the slow reader about
/// every frame, about the verdict and about the byte at which it falls.
pub fn check_stream<D: Side>(extension: Extension, stream: &[u8], cuts: impl IntoIterator<Item = usize>) {
    let expected = read_slowly::<D>(extension, stream);
    check_pieces::<D>(extension, [stream], &expected);
    check_pieces::<D>(extension, stream.chunks(1), &expected);
    let mut rest = stream;
    let mut cuts = cuts.into_iter();
    let pieces = std::iter::from_fn(|| {
        let length = cuts.next().unwrap_or(rest.len()).min(rest.len());
        let (piece, after) = rest.split_at(length);
        rest = after;
        // An empty piece is a legal read, but it is no progress.
        (!piece.is_empty() || !rest.is_empty()).then_some(piece)
    });
    check_pieces::<D>(extension, pieces, &expected);
}

fn check_pieces<'a, D: Side>(
    extension: Extension,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    expected: &Reading,
) {
    let mut decoder = Decoder::<D>::new(extension);
    let mut frames = Vec::new();
    let mut fed = 0;
    for piece in pieces {
        let before = fed;
        fed += piece.len();
        let outcome = decoder.feed(piece, |frame| frames.push(D::written(frame)));
        match (outcome, expected.verdict) {
            (Ok(()), verdict) => {
                assert!(verdict.is_none_or(|(_, at)| fed < at), "read past a verdict {verdict:?}");
                assert_eq!(decoder.is_mid_frame(), expected.open_after[fed], "after {fed} bytes");
            }
            (Err(malformed), Some((kind, at))) => {
                assert_eq!(kind_of(malformed), kind);
                assert!(before < at && at <= fed, "verdict between {before} and {fed}, not at {at}");
                assert_stays_broken(decoder, malformed);
                break;
            }
            (Err(malformed), None) => panic!("{malformed} after {fed} bytes of a legal stream"),
        }
    }
    assert_eq!(frames, expected.frames);
}

fn assert_stays_broken<D: Side>(mut decoder: Decoder<D>, malformed: Malformed) {
    for more in [&b""[..], b"\n", b"R\0\0\0\0\0\0\0\x01k\n"] {
        let again = decoder.feed(more, |_| panic!("a frame after the verdict"));
        assert_eq!(again, Err(malformed));
        assert!(!decoder.is_mid_frame());
    }
}

/// What a stream says.
struct Reading {
    /// Its frames, as the bytes that stood there.
    frames: Vec<Vec<u8>>,
    /// Why it cannot be read on, and after how many bytes that is certain.
    verdict: Option<(&'static str, usize)>,
    /// After each number of bytes: whether a frame is open.
    open_after: Vec<bool>,
}

fn read_slowly<D: Side>(extension: Extension, stream: &[u8]) -> Reading {
    let mut reading = Reading { frames: Vec::new(), verdict: None, open_after: vec![false] };
    let mut frame: Vec<u8> = Vec::new();
    for (index, &byte) in stream.iter().enumerate() {
        let mut verdict = None;
        let op = *frame.first().unwrap_or(&byte);
        let header = D::OPS
            .iter()
            .find(|(known, _, extended)| *known == op && (!extended || extension == Extension::On));
        match header {
            None if byte == b'\n' && frame.is_empty() => {}
            None => verdict = Some("bad_op"),
            Some((_, header, _)) if byte == b'\n' && frame.len() > *header => {
                verdict = D::fault(op, &frame[1..1 + header], &frame[1 + header..]);
                frame.push(byte);
                if verdict.is_none() {
                    reading.frames.push(std::mem::take(&mut frame));
                }
            }
            Some(_) => {
                frame.push(byte);
                verdict = (frame.len() > 192).then_some("line_too_long");
            }
        }
        if let Some(kind) = verdict {
            reading.verdict = Some((kind, index + 1));
            break;
        }
        reading.open_after.push(!frame.is_empty());
    }
    reading
}

/// The name of a verdict in the test vectors; towards a client it is also the
/// reason that the server sends.
pub fn kind_of(malformed: Malformed) -> &'static str {
    match malformed {
        Malformed::LineTooLong => "line_too_long",
        Malformed::BadOp(_) => "bad_op",
        Malformed::BadKey(_) => "bad_key",
        Malformed::BadLease(_) => "bad_lease",
        Malformed::BadText(_) => "bad_text",
    }
}

/// What the slow reader knows of a direction.
pub trait Side: Direction {
    /// Op, bytes of its fixed header, whether it needs extension 1.
    const OPS: &'static [(u8, usize, bool)];

    /// The bytes of a frame.
    fn written(frame: Self::Frame<'_>) -> Vec<u8>;

    /// What is wrong with a complete frame.
    fn fault(op: u8, header: &[u8], text: &[u8]) -> Option<&'static str>;
}

impl Side for ClientToServer {
    const OPS: &'static [(u8, usize, bool)] =
        &[(b'A', 10, false), (b'R', 8, false), (b'C', 8, true), (b'P', 8, true), (b'V', 8, true)];

    fn written(frame: ClientFrame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.encode(&mut out);
        out
    }

    fn fault(op: u8, header: &[u8], text: &[u8]) -> Option<&'static str> {
        if op == b'A' && (header[1] == 0 || header[1] > 250) {
            return Some("bad_lease");
        }
        key_fault(text)
    }
}

impl Side for ServerToClient {
    const OPS: &'static [(u8, usize, bool)] = &[
        (b'A', 16, false),
        (b'G', 20, true),
        (b'T', 8, false),
        (b'B', 8, false),
        (b'R', 8, false),
        (b'N', 8, false),
        (b'P', 16, true),
        (b'M', 0, false),
        (b'L', 0, false),
        (b'E', 0, false),
    ];

    fn written(frame: ServerFrame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.encode(&mut out);
        out
    }

    fn fault(op: u8, _header: &[u8], text: &[u8]) -> Option<&'static str> {
        let legal = match (op, std::str::from_utf8(text)) {
            (b'M' | b'L', text) => text.is_ok(),
            (b'E', Ok(reason)) => {
                !reason.is_empty()
                    && reason.chars().all(|letter| letter == '_' || letter.is_ascii_lowercase())
            }
            (b'E', Err(_)) => false,
            _ => return key_fault(text),
        };
        (!legal).then_some("bad_text")
    }
}

fn key_fault(text: &[u8]) -> Option<&'static str> {
    let legal = (1..=128).contains(&text.len())
        && std::str::from_utf8(text).is_ok_and(|key| !key.contains([' ', '\n', '\r']));
    (!legal).then_some("bad_key")
}

/// Body of the target `handshake`: both sides, each reading what the other may
/// send.
pub fn handshake(data: &[u8]) {
    greeting(data);
    response(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(domain) = Domain::parse(text)
    {
        assert_eq!(domain.to_string(), text.to_ascii_lowercase());
    }
}

fn greeting(data: &[u8]) {
    let Ok(greeting) = Greeting::parse(data) else { return };
    assert!(data.len() <= 256 && data.ends_with(greeting.nonce.as_bytes()));
    assert!(!greeting.nonce.is_empty() && greeting.nonce.bytes().all(|byte| byte.is_ascii_graphic()));
    let mut line = Vec::new();
    greeting.encode(&mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    // Our own word may be longer than the one that was read.
    if line.len() <= 256 {
        assert_eq!(Greeting::parse(&line), Ok(greeting));
    }
}

fn response(data: &[u8]) {
    let nonce = "AAECAwQFBgcICQoLDA0ODw";
    if let Ok(response) = Response::parse(data) {
        assert!(data.len() <= 128);
        assert_eq!(response.proves(b"secret", nonce), &data[..43] == digest(b"secret", nonce).as_bytes());
    }
    // Any bytes can be the token; the right answer opens, any other character does not.
    for extension in [false, true] {
        let mut line = Vec::new();
        encode_response(data, nonce, extension, &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        let answer = Response::parse(&line).expect("our own answer");
        assert!(answer.proves(data, nonce) && answer.extension == extension);
        line[data.len() % 43] ^= 1;
        assert!(!Response::parse(&line).expect("of the same form").proves(data, nonce));
    }
}
