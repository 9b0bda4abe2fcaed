//! Broken promises, told so that a person can see why.

use std::fmt;
use std::fmt::Write as _;

use crate::{Call, Event, History, Nanos, Op, Outcome, SECOND};

/// How many violations of one rule are told; more of the same help nobody.
const MOST: usize = 20;

/// How many requests an excerpt shows.
const LINES: usize = 16;

/// Which promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The history itself makes no sense, so nothing can be said about it.
    Malformed,
    /// An answer answers an open request.
    Stray,
    /// Every request is answered.
    NoAnswer,
    /// An answer comes in time.
    LateAnswer,
    /// A wait never ends early.
    EarlyTimeout,
    /// A refusal has a reason.
    GroundlessBusy,
    /// A token is never zero and is given out once.
    UniqueToken,
    /// A grant that was asked for after another one had been seen has the greater token.
    TokenOrder,
    /// Tokens have no gap that no unknown outcome explains.
    TokenGap,
    /// One holder at a time.
    Exclusion,
    /// No ticket claims more of its lease than the lease.
    Overclaim,
    /// A lock that is held is never lost.
    LostLock,
    /// A lock is released once.
    DoubleRelease,
    /// Only the current grant of a key can be released.
    PhantomRelease,
    /// A lease ends in time.
    LateExpiry,
    /// First come, first served.
    Fifo,
    /// A key that nobody can hold is granted.
    Stuck,
    /// What a verify says stays true.
    Verdict,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::Stray,
        Self::NoAnswer,
        Self::LateAnswer,
        Self::EarlyTimeout,
        Self::GroundlessBusy,
        Self::UniqueToken,
        Self::TokenOrder,
        Self::TokenGap,
        Self::Exclusion,
        Self::Overclaim,
        Self::LostLock,
        Self::DoubleRelease,
        Self::PhantomRelease,
        Self::LateExpiry,
        Self::Fifo,
        Self::Stuck,
        Self::Verdict,
    ];

    /// The promise in words.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::Malformed => "a history makes sense",
            Self::Stray => "an answer answers an open request",
            Self::NoAnswer => "every request is answered",
            Self::LateAnswer => "an answer comes in time",
            Self::EarlyTimeout => "a wait never ends early",
            Self::GroundlessBusy => "a refusal has a reason",
            Self::UniqueToken => "a token is given out once",
            Self::TokenOrder => "tokens grow in real time",
            Self::TokenGap => "tokens have no gap",
            Self::Exclusion => "one holder at a time",
            Self::Overclaim => "a ticket claims no more than its lease",
            Self::LostLock => "a held lock is never lost",
            Self::DoubleRelease => "a lock is released once",
            Self::PhantomRelease => "only the current grant can be released",
            Self::LateExpiry => "a lease ends in time",
            Self::Fifo => "first come, first served",
            Self::Stuck => "a free key is granted",
            Self::Verdict => "what a verify says stays true",
        }
    }
}

/// A broken promise. Its `Display` tells what was seen, with the part of the history
/// around it.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// The lock that it is about, where it is about one.
    pub key: Option<String>,
    /// The `id`s of the requests that show it.
    pub ops: Vec<u64>,
    /// What was seen.
    pub seen: String,
    excerpt: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}", self.rule.promise())?;
        if let Some(key) = &self.key {
            write!(f, ", key {key:?}")?;
        }
        write!(f, ": {}\n{}", self.seen, self.excerpt)
    }
}

// A failed test prints it, and the text is what its reader needs.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The violations of a history, as they are found.
pub(crate) struct Findings<'h> {
    history: &'h History,
    /// Times are told from here.
    start: Nanos,
    found: Vec<Violation>,
    counts: [usize; Rule::ALL.len()],
}

impl<'h> Findings<'h> {
    pub(crate) fn new(history: &'h History) -> Self {
        let start = history.ops.iter().map(|op| op.invoked).min().unwrap_or(0);
        Self { history, start, found: Vec::new(), counts: [0; Rule::ALL.len()] }
    }

    pub(crate) fn add(&mut self, rule: Rule, ops: &[&Op], seen: String) {
        let Some(count) = self.counts.get_mut(rule as usize) else { return };
        *count += 1;
        if *count > MOST {
            return;
        }
        let key = ops.first().map(|op| op.key.clone());
        let excerpt = self.excerpt(ops);
        let ops = ops.iter().map(|op| op.id).collect();
        self.found.push(Violation { rule, key, ops, seen, excerpt });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The gravest first.
    pub(crate) fn finish(mut self) -> Vec<Violation> {
        self.found.sort_by_key(|violation| violation.rule);
        self.found
    }

    /// A moment, as the excerpt tells it.
    pub(crate) fn time(&self, at: Nanos) -> String {
        let (sign, nanos) = if at < self.start { ("-", self.start - at) } else { ("", at - self.start) };
        format!("{sign}{}.{:06} s", nanos / SECOND, nanos % SECOND / 1000)
    }

    /// The requests that show a violation, and those of their keys around them.
    fn excerpt(&self, shown: &[&Op]) -> String {
        let from = shown.iter().map(|op| op.invoked).min().unwrap_or(0);
        let to = shown.iter().map(|op| op.returned.map_or(op.invoked, |returned| returned.at)).max();
        let to = to.unwrap_or(from);
        let is_shown = |op: &Op| shown.iter().any(|shown| std::ptr::eq(*shown, op));
        let is_near = |op: &&Op| {
            let end = op.returned.map_or(Nanos::MAX, |returned| returned.at);
            op.invoked <= to && end >= from && shown.iter().any(|shown| shown.key == op.key)
        };
        let mut ops: Vec<&Op> = self.history.ops.iter().filter(is_near).collect();
        let omitted = ops.len().saturating_sub(LINES);
        // Of a crowd, the last ones to begin are the nearest to the end of the story.
        ops.sort_by_key(|op| (!is_shown(op), std::cmp::Reverse(op.invoked)));
        ops.truncate(LINES.max(shown.len()));
        let mut lines: Vec<(Nanos, String)> =
            ops.iter().map(|op| (op.invoked, self.line(op, is_shown(op)))).collect();
        for note in self.history.notes.iter().filter(|note| note.from <= to && note.to >= from).take(LINES) {
            let what = match &note.event {
                Event::Forgot => "who holds what was lost".to_owned(),
                Event::SkippedTokens => "tokens went on higher up".to_owned(),
                Event::Died { process } => format!("process {process} died"),
                Event::Stray { text } => format!("stray answer: {text}"),
                Event::End => "the record ends".to_owned(),
                Event::Remark { text } => text.clone(),
            };
            lines.push((note.from, format!("  {} to {}: {what}", self.time(note.from), self.time(note.to))));
        }
        lines.sort();
        let mut text = String::new();
        for (_, line) in lines {
            let _ = writeln!(text, "{line}");
        }
        if omitted > 0 {
            let _ = writeln!(text, "  ... and {omitted} more of these keys at that time");
        }
        text
    }

    fn line(&self, op: &Op, marked: bool) -> String {
        let mut line = format!(
            "{} {} #{} process {}",
            if marked { ">" } else { " " },
            self.time(op.invoked),
            op.id,
            op.process
        );
        if let Some(lane) = op.lane {
            let _ = write!(line, " connection {} ({})", lane.connection, lane.order);
        }
        let _ = match &op.call {
            Call::Acquire { wait_secs, lease_secs, cancelled, queued } => {
                let _ = write!(line, ": acquire {:?} wait {wait_secs} s lease {lease_secs} s", op.key);
                if *cancelled {
                    line.push_str(", cancelled");
                }
                queued.map_or(Ok(()), |at| write!(line, ", seen in the queue at {}", self.time(at)))
            }
            Call::Release { token } => write!(line, ": release {:?} token {token}", op.key),
            Call::Verify { of } => write!(line, ": verify {:?} of #{of}", op.key),
        };
        match op.returned {
            None => line.push_str(" -> no answer"),
            Some(returned) => {
                let outcome = match returned.outcome {
                    Outcome::Granted { token, ends: None } => format!("granted, token {token}"),
                    Outcome::Granted { token, ends: Some(ends) } => {
                        format!("granted, token {token}, until {}", self.time(ends))
                    }
                    Outcome::TimedOut => "timed out".to_owned(),
                    Outcome::Busy => "busy".to_owned(),
                    Outcome::GivenBack => "to be given back".to_owned(),
                    Outcome::Released => "released".to_owned(),
                    Outcome::NotHeld { retried: false } => "not held".to_owned(),
                    Outcome::NotHeld { retried: true } => {
                        "not held (an earlier try lost its answer)".to_owned()
                    }
                    Outcome::NotAcquired => "not acquired".to_owned(),
                    Outcome::NotSent => "not sent".to_owned(),
                    Outcome::Indeterminate => "unknown".to_owned(),
                };
                let _ = write!(line, " -> {} {outcome}", self.time(returned.at));
            }
        }
        line
    }
}
