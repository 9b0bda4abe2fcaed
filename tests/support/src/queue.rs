//! Looking at a queue, with extension 1.

use crate::{PATIENCE, Raw, Reply, wait_until, wire};

/// The place of an owner in the queue of a key, and the length of that queue.
///
/// # Panics
/// If something else is said.
#[track_caller]
pub fn place(raw: &mut Raw, key: &str, owner: u64) -> (u32, u32) {
    raw.send(wire::place(key, owner));
    match raw.read() {
        Reply::Place { owner: told, place, waiters, key: of } if told == owner && of == key.as_bytes() => {
            (place, waiters)
        }
        other => panic!("{other:?} instead of a place"),
    }
}

/// Waits until so many wait for the key.
///
/// # Panics
/// If they do not in time.
#[track_caller]
pub fn wait_for_queue(raw: &mut Raw, key: &str, waiters: usize) {
    wait_until(&format!("{waiters} waiters of {key}"), PATIENCE, || {
        place(raw, key, u64::MAX).1 as usize == waiters
    });
}
