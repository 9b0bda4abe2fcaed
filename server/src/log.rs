//! The log lines of the process, on standard error.
//!
//! They leave by a thread of their own, through a buffer with an end: whoever
//! reads standard error may stall, or go away, and nobody who waits for a lock
//! pays for it. What finds no room is counted, and the count is told as soon as
//! lines get through again.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ticketing_server::config::{LogFormat, LogLevel};
use tracing::{Level, error, warn};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Bytes of lines that may wait to be written.
const MOST_BYTES: usize = 1024 * 1024;

/// How long the end of the process waits for its last lines to be taken.
const LONGEST_FLUSH: Duration = Duration::from_millis(200);

/// From now on events, and panics, are lines on standard error.
///
/// # Errors
/// If there is no thread to write them.
pub(crate) fn init(format: LogFormat, level: LogLevel) -> io::Result<Log> {
    let log = Log::default();
    let lines = log.clone();
    let tell_lost = |lost| {
        warn!(lost, "log lines were lost: standard error did not take them");
    };
    thread::Builder::new().name("log".to_owned()).spawn(move || lines.write_to(io::stderr(), tell_lost))?;

    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    // What a library does is of interest only where it goes wrong, or to whoever looks for it.
    let libraries = if level == Level::TRACE { level } else { level.min(Level::WARN) };
    let targets = Targets::new()
        .with_default(libraries)
        .with_target("ticketing", level)
        // It warns at every message that does not arrive; the status tells who is out of reach.
        .with_target("openraft", if level == Level::TRACE { level } else { Level::ERROR });
    let writer = log.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would tell them on standard error itself, and panic if it cannot.
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry();
    match format {
        LogFormat::Text => registry.with(lines.with_filter(targets)).init(),
        LogFormat::Json => registry.with(lines.json().with_filter(targets)).init(),
    }
    // The usual hook writes to standard error itself, and would wait for it.
    std::panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            error!("a defect: {panic}\n{trace}");
        } else {
            error!("a defect: {panic}");
        }
    }));
    Ok(log)
}

/// Lines on their way to standard error. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Vec<u8>,
    /// Lines for which there was no room.
    lost: u64,
    /// Some were taken and are being written.
    in_hand: bool,
}

impl Log {
    /// Takes a line that is no event.
    pub(crate) fn line(&self, text: &str) {
        self.push(format!("{text}\n").as_bytes());
    }

    /// Waits until all lines are written, if standard error takes them.
    pub(crate) fn flush(&self) {
        let busy = |lines: &mut Lines| lines.in_hand || !lines.waiting.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.lock(), LONGEST_FLUSH, busy);
        drop(waited);
    }

    fn push(&self, line: &[u8]) {
        let mut lines = self.lock();
        if lines.waiting.len() + line.len() > MOST_BYTES {
            lines.lost += 1;
            return;
        }
        lines.waiting.extend_from_slice(line);
        self.0.changed.notify_all();
    }

    /// Writes for ever. Tells how many lines were lost when one has got through.
    fn write_to(&self, mut out: impl Write, tell_lost: impl Fn(u64)) {
        let mut lost = 0;
        loop {
            let (batch, without_room) = self.take();
            lost += without_room;
            match out.write_all(&batch) {
                Ok(()) if lost > 0 => tell_lost(std::mem::take(&mut lost)),
                Ok(()) => {}
                Err(_) => lost += batch.iter().map(|&byte| u64::from(byte == b'\n')).sum::<u64>(),
            }
            self.lock().in_hand = false;
            self.0.changed.notify_all();
        }
    }

    fn take(&self) -> (Vec<u8>, u64) {
        let nothing = |lines: &mut Lines| lines.waiting.is_empty();
        let waited = self.0.changed.wait_while(self.lock(), nothing);
        let mut lines = waited.unwrap_or_else(PoisonError::into_inner);
        lines.in_hand = true;
        (std::mem::take(&mut lines.waiting), std::mem::take(&mut lines.lost))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Log {
    /// Comes once for every event, with its whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Takes a batch when it is allowed to, or fails if it is told so.
    struct Reader {
        allowed: Receiver<bool>,
        taken: Sender<Vec<u8>>,
    }

    impl Write for Reader {
        fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
            if !self.allowed.recv().unwrap_or(false) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.taken.send(batch.to_vec()).unwrap();
            Ok(batch.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A log, a way to let a batch through, what came through, and the counts of what was lost.
    fn log() -> (Log, Sender<bool>, Receiver<Vec<u8>>, Receiver<u64>) {
        let (allow, allowed) = channel();
        let (taken, batches) = channel();
        let (tell, lost) = channel();
        let log = Log::default();
        let writer = log.clone();
        thread::spawn(move || writer.write_to(Reader { allowed, taken }, |lines| tell.send(lines).unwrap()));
        (log, allow, batches, lost)
    }

    #[test]
    fn lines_come_in_order_and_a_flush_waits_for_them() {
        let (log, allow, batches, lost) = log();
        for number in 0..1000 {
            log.line(&number.to_string());
        }
        (0..1000).for_each(|_| allow.send(true).unwrap());
        // It may give up before a slow machine is done.
        while log.lock().in_hand || !log.lock().waiting.is_empty() {
            log.flush();
        }
        let text = String::from_utf8(batches.try_iter().flatten().collect()).unwrap();
        assert!(text.lines().map(|line| line.parse::<u64>().unwrap()).eq(0..1000));
        assert!(lost.try_recv().is_err());
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_when_lines_get_through_again() {
        let (log, allow, batches, lost) = log();
        let line = "x".repeat(999);
        log.line(&line);
        // The first one is in the hands of the writer, who waits.
        while !log.lock().in_hand {
            thread::yield_now();
        }
        let room = MOST_BYTES / 1000;
        (0..room + 7).for_each(|_| log.line(&line));
        assert!(log.lock().waiting.len() <= MOST_BYTES);
        log.flush();
        allow.send(true).unwrap();
        allow.send(true).unwrap();
        assert_eq!(lost.recv().unwrap(), 7);
        assert_eq!(batches.try_iter().map(|batch| batch.len()).sum::<usize>(), 1000 * (room + 1));
    }

    #[test]
    fn what_cannot_be_written_is_counted_too() {
        let (log, allow, _batches, lost) = log();
        for _ in 0..3 {
            log.line("one");
            log.line("two");
            allow.send(false).unwrap();
            allow.send(false).unwrap();
            while !log.lock().waiting.is_empty() || log.lock().in_hand {
                thread::yield_now();
            }
        }
        log.line("three");
        // What was not used up above fails it a few more times.
        (0..20).for_each(|_| allow.send(true).unwrap());
        while lost.try_recv().is_err() {
            log.line("four");
            thread::yield_now();
        }
    }
}
