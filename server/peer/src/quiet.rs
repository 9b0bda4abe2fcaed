//! Log lines that others can cause, as often as they like.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// Lets one line of each kind through in ten seconds. There are as many kinds
/// as the code has words for them.
#[derive(Debug, Default)]
pub(crate) struct Quiet(HashMap<&'static str, Said>);

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Quiet {
    /// Whether a line of this kind may be said now, and how many were left out
    /// since the last one.
    pub(crate) fn may_say(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        match self.0.get_mut(kind) {
            Some(said) if now.saturating_duration_since(said.at) < PAUSE => {
                said.left_out += 1;
                None
            }
            said => {
                let left_out = said.map_or(0, |said| said.left_out);
                self.0.insert(kind, Said { at: now, left_out: 0 });
                Some(left_out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_of_a_kind_in_ten_seconds() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(quiet.may_say("a", at(0)), Some(0));
        assert_eq!(quiet.may_say("a", at(1)), None);
        assert_eq!(quiet.may_say("a", at(9)), None);
        assert_eq!(quiet.may_say("b", at(9)), Some(0));
        assert_eq!(quiet.may_say("a", at(10)), Some(2));
        assert_eq!(quiet.may_say("a", at(20)), Some(0));
    }
}
