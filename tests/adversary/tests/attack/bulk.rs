//! Requests by the hundred thousand.

use std::io::Write as _;
use std::thread;

use ticketing_test_support::{Raw, Reply};

/// A count of a heavy attack, multiplied by the variable `ADVERSARY_SCALE`: by default
/// every kind of attack runs at a size that fits into everyday work.
pub(crate) fn scaled(count: u64) -> u64 {
    let scale = std::env::var("ADVERSARY_SCALE").map_or(1, |scale| scale.parse().expect("a whole number"));
    count * scale
}

/// Sends a stream and meanwhile reads its `count` answers: a client that does not read
/// while it writes would be stopped by the server.
#[track_caller]
pub(crate) fn pipelined(raw: &mut Raw, stream: &[u8], count: u64, mut on_reply: impl FnMut(Reply)) {
    let mut writer = raw.tcp().try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || writer.write_all(stream).expect("the server takes everything"));
        for _ in 0..count {
            on_reply(raw.read());
        }
    });
}

/// The token of a grant, and nothing but a grant.
#[track_caller]
pub(crate) fn token_of(reply: &Reply) -> u64 {
    match reply {
        Reply::Granted { token, .. } | Reply::GrantedUntil { token, .. } => *token,
        other => panic!("{other:?} instead of a grant"),
    }
}
