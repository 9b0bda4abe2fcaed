//! The fuzz targets on stable Rust and for a bounded time: over every seed, and
//! over mutations of the seeds that are the same in every run.
//!
//! The seeds in `fuzz/seeds` are made from the golden vectors; after a change
//! of those, `UPDATE_SEEDS=1 cargo test -p ticketing-protocol --test fuzz_bounded`
//! writes them anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code, unreachable_pub, reason = "shared with another test crate")]
mod common;
#[path = "../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod fuzz;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

use common::{Frames, FromClient, FromServer, Handshake, Streams, load};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const MUTATIONS: usize = 50_000;

/// Inputs by name.
type Seeds = BTreeMap<String, Vec<u8>>;

#[test]
fn decode_client() {
    let frames: Frames<FromClient> = load("client_frames.json");
    let streams: Streams<FromClient> = load("client_streams.json");
    run("decode_client", decoder_seeds(&frames, &streams), fuzz::decode_client);
}

#[test]
fn decode_server() {
    let frames: Frames<FromServer> = load("server_frames.json");
    let streams: Streams<FromServer> = load("server_streams.json");
    run("decode_server", decoder_seeds(&frames, &streams), fuzz::decode_server);
}

/// Every stream, and the plain frame of every op.
fn decoder_seeds<F>(frames: &Frames<F>, streams: &Streams<F>) -> Seeds {
    let frames = frames.frames.iter().filter(|vector| vector.name.ends_with("_plain"));
    let frames = frames.map(|vector| (&vector.name, vector.extension, &vector.bytes.0));
    let streams = streams.streams.iter().map(|vector| (&vector.name, vector.extension, &vector.bytes.0));
    let seed = |(name, extension, bytes): (&String, bool, &Vec<u8>)| {
        (name.clone(), [&[u8::from(extension)][..], bytes].concat())
    };
    frames.chain(streams).map(seed).collect()
}

#[test]
fn handshake() {
    let file: Handshake = load("handshake.json");
    let greetings = file.greetings.iter().map(|v| (format!("greeting_{}", v.name), v.line.0.clone()));
    let responses = file.responses.iter().map(|v| (format!("response_{}", v.name), v.line.0.clone()));
    run("handshake", greetings.chain(responses).collect(), fuzz::handshake);
}

fn run(target: &str, seeds: Seeds, body: fn(&[u8])) {
    check_committed(target, &seeds);
    for (name, seed) in &seeds {
        run_one(body, seed, name);
    }
    let seeds: Vec<Vec<u8>> = seeds.into_values().collect();
    let mut random = StdRng::seed_from_u64(0x7469_636b_6574);
    for round in 0..MUTATIONS {
        let input = mutate(&seeds, &mut random);
        run_one(body, &input, &format!("mutation {round}"));
    }
}

/// The committed seeds are what the vectors say, or are made so.
fn check_committed(target: &str, seeds: &Seeds) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    if env::var_os("UPDATE_SEEDS").is_some() {
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        for (name, seed) in seeds {
            fs::write(folder.join(name), seed).unwrap();
        }
    }
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let committed: Seeds = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    assert!(committed == *seeds, "{} is stale: run this test with UPDATE_SEEDS=1", folder.display());
}

/// Runs the body; if it panics, says for which input.
fn run_one(body: fn(&[u8]), input: &[u8], name: &str) {
    struct Tell<'a>(&'a [u8], &'a str);
    impl Drop for Tell<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("input of {}: {}", self.1, self.0.escape_ascii());
            }
        }
    }
    let _tell = Tell(input, name);
    body(input);
}

/// One seed, or the start of one and the end of another, with a few bytes
/// changed, taken out, put in or doubled.
fn mutate(seeds: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut input = seeds[random.random_range(0..seeds.len())].clone();
    if random.random_ratio(1, 3) {
        let other = &seeds[random.random_range(0..seeds.len())];
        input.truncate(random.random_range(0..=input.len()));
        input.extend_from_slice(&other[random.random_range(0..=other.len())..]);
    }
    for _ in 0..random.random_range(0..6) {
        let at = random.random_range(0..=input.len());
        let interesting = [b'\n', b'\r', b' ', b';', b'=', b'A', b'R', b'k', 0, 0x7f, 0x80, 0xff];
        let byte = interesting[random.random_range(0..interesting.len())];
        match random.random_range(0..5) {
            0 => input.insert(at, byte),
            1 if at < input.len() => input[at] = byte,
            2 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            3 if at < input.len() => drop(input.remove(at)),
            _ => {
                let end = random.random_range(at..=input.len());
                input.extend_from_within(at..end);
            }
        }
    }
    input
}
