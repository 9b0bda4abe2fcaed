//! What is logged on the thread of a test, which runs all of its tasks.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The lines of INFO and above of this thread.
pub(crate) struct Logs(());

impl Logs {
    /// Begins anew.
    pub(crate) fn collect() -> Self {
        listen();
        LINES.with_borrow_mut(Vec::clear);
        Self(())
    }

    /// The lines with this text in them.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(text)).map(Into::into).collect()
    }

    #[allow(clippy::unused_self)] // There is no text without having begun.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(LINES.with_borrow(Clone::clone)).unwrap()
    }
}

/// One subscriber for all tests, before anything is logged: a place in the code
/// that logs remembers whether anybody listens.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_writer(|| Line)
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .init();
    });
}

struct Line;

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
