//! What a person at a terminal sees while it runs; nothing anywhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on stderr that says what is being measured.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts the bar, if stderr is a terminal.
    pub(crate) fn start(steps: u32) -> Self {
        let bar = ProgressBar::new(u64::from(steps));
        if let Ok(style) = ProgressStyle::with_template("[{elapsed}] {bar:30} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// The next step begins.
    pub(crate) fn step(&self, what: &'static str) {
        self.0.set_message(what);
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
