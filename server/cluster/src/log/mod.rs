//! Where the entries of the log are kept.

mod memory;

use openraft::EntryPayload;

pub(crate) use memory::MemoryLog;

use crate::types::Entry;

/// How many bytes of entries are read for one message to a peer, at least one entry.
const READ_AT_ONCE: usize = 1 << 20;

/// Roughly how much memory an entry takes.
fn weight(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Blank => size_of::<Entry>(),
        EntryPayload::Normal(command) => size_of::<Entry>() + command.weight(),
        // A handful of members with their addresses.
        EntryPayload::Membership(_) => size_of::<Entry>() + 1024,
    }
}
