//! What the core has to tell, on its way to Python's `logging`.
//!
//! It goes into a pipe that a thread of Python reads. The broker's thread never
//! asks for the interpreter's lock and never waits: what does not fit in the
//! pipe is counted, and the number is told later. A fork gets a pipe of its own.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::fd::{IntoRawFd as _, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::process::Own;

/// So long that every sentence of the core fits, and so short that a line of
/// it, each byte escaped, is written whole or not at all.
const MAX_MESSAGE_BYTES: usize = 600;

static PIPE: ArcSwapOption<Pipe> = ArcSwapOption::const_empty();

struct Pipe {
    writer: io::PipeWriter,
    here: Own<()>,
}

/// Lines that found no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Opens the pipe of this process: the file descriptor from which lines come,
/// each a JSON list of the level as `logging` counts it, and a message.
#[pyfunction]
pub(crate) fn open_log() -> io::Result<RawFd> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    PIPE.store(Some(Arc::new(Pipe { writer, here: Own::new(()) })));
    // It is set for good; a second interpreter of this process shares it.
    let _ = tracing::subscriber::set_global_default(Forward);
    Ok(reader.into_raw_fd())
}

/// Closes the pipe: its reader comes to an end, and what there is to tell is lost.
#[pyfunction]
pub(crate) fn close_log() {
    PIPE.store(None);
}

/// Takes the events of the core, and leaves out its spans, which would cost
/// something with each request.
struct Forward;

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG && metadata.target().starts_with("ticketing")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // No span is enabled, so nobody asks.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let Text { mut message, fields } = text;
        message += &fields;
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        let lost = LOST.swap(0, Ordering::AcqRel);
        if lost > 0 {
            message += &format!(" ({lost} messages before this one were lost)");
        }
        if !write(level(*event.metadata().level()), &message) {
            LOST.fetch_add(lost + 1, Ordering::AcqRel);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Writes a line, and says whether there was room for it.
fn write(level: u8, message: &str) -> bool {
    let pipe = PIPE.load();
    let Some(pipe) = pipe.as_ref().filter(|pipe| pipe.here.get().is_some()) else { return false };
    let line = format!("{}\n", serde_json::json!([level, message]));
    (&pipe.writer).write(line.as_bytes()).is_ok()
}

/// The number that `logging` has for a level.
fn level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// An event as a sentence, with its fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
