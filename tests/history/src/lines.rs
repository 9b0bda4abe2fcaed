//! Histories as lines of JSON, one request or one note a line.
//!
//! ```json
//! {"id":1,"process":7,"key":"k","call":"acquire","wait_secs":5,"lease_secs":10,"invoked":5,"returned":{"at":9,"outcome":"granted","token":41}}
//! {"id":2,"process":7,"key":"k","call":"release","token":41,"invoked":12}
//! {"from":14,"to":14,"event":"died","process":7}
//! ```
//!
//! A line replaces an earlier one with the same `id`. So a process that may be killed
//! writes a request twice: before it is sent, and when it has returned.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::{History, Note, Op};

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Op(Op),
    Note(Note),
}

/// A line that is no part of a history.
#[derive(Debug, thiserror::Error)]
#[error("line {number} of the history: {why}")]
pub struct BadLine {
    /// Counted from 1.
    pub number: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Writes one [`Op`] or [`Note`] as a line.
///
/// # Errors
/// Those of the writer.
pub fn write_line(out: &mut impl Write, op_or_note: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(op_or_note)?;
    line.push(b'\n');
    out.write_all(&line)
}

impl History {
    /// Adds what another recorder wrote.
    ///
    /// The last line may be torn, as a killed process leaves it; it is left out.
    ///
    /// # Errors
    /// A line that cannot be read, or is neither a request nor a note.
    pub fn read(&mut self, lines: impl BufRead) -> Result<(), BadLine> {
        let mut places: HashMap<u64, usize> =
            self.ops.iter().enumerate().map(|(place, op)| (op.id, place)).collect();
        let mut torn: Option<BadLine> = None;
        for (index, line) in lines.lines().enumerate() {
            let bad = |why: String| BadLine { number: index + 1, why };
            let line = line.map_err(|error| bad(error.to_string()))?;
            // Only the last line may be torn, and another one has followed.
            torn.map_or(Ok(()), Err)?;
            torn = match serde_json::from_str(&line) {
                Ok(Line::Note(note)) => {
                    self.notes.push(note);
                    None
                }
                Ok(Line::Op(op)) => {
                    let place = *places.entry(op.id).or_insert(self.ops.len());
                    match self.ops.get_mut(place) {
                        Some(earlier) => *earlier = op,
                        None => self.ops.push(op),
                    }
                    None
                }
                Err(error) => Some(bad(format!("{error}: {line}"))),
            };
        }
        Ok(())
    }

    /// Writes every request and note as a line.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.ops.iter().try_for_each(|op| write_line(out, op))?;
        self.notes.iter().try_for_each(|note| write_line(out, note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Event, Lane, Outcome, Returned};

    fn history() -> History {
        let op = |id, call, outcome: Option<Outcome>| Op {
            id,
            process: 1,
            lane: Some(Lane { connection: 3, order: id }),
            key: "naïve \"key\"".to_owned(),
            call,
            invoked: u64::MAX - 1,
            returned: outcome.map(|outcome| Returned { at: u64::MAX, outcome }),
        };
        let acquire = Call::Acquire { wait_secs: 0, lease_secs: 250, cancelled: true, queued: Some(4) };
        let granted = Outcome::Granted { token: u64::MAX, ends: Some(7) };
        let events = [
            Event::Forgot,
            Event::SkippedTokens,
            Event::Died { process: 2 },
            Event::Stray { text: "T".to_owned() },
            Event::End,
            Event::Remark { text: "the leader was killed".to_owned() },
        ];
        History {
            ops: vec![
                op(1, acquire, Some(granted)),
                op(2, Call::acquire(1, 2), Some(Outcome::GivenBack)),
                op(3, Call::Release { token: 5 }, Some(Outcome::NotHeld { retried: true })),
                op(4, Call::Verify { of: 1 }, Some(Outcome::NotAcquired)),
                op(5, Call::Release { token: 5 }, None),
            ],
            notes: events.map(|event| Note { from: 1, to: 2, event }).to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        history().write(&mut bytes).unwrap();
        let mut read = History::default();
        read.read(&bytes[..]).unwrap();
        assert_eq!(read, history());
    }

    #[test]
    fn a_later_line_replaces_an_earlier_one() {
        let mut bytes = Vec::new();
        let mut op = history().ops.remove(0);
        let complete = op.clone();
        op.returned = None;
        write_line(&mut bytes, &op).unwrap();
        write_line(&mut bytes, &complete).unwrap();
        let mut read = History::default();
        read.read(&bytes[..]).unwrap();
        assert_eq!(read.ops, [complete]);
    }

    #[test]
    fn only_the_last_line_may_be_torn() {
        let mut bytes = Vec::new();
        history().write(&mut bytes).unwrap();
        let mut read = History::default();
        read.read(&bytes[..bytes.len() - 5]).unwrap();
        assert_eq!(read.notes.len(), history().notes.len() - 1);

        bytes.splice(0..1, *b"[");
        let error = History::default().read(&bytes[..]).unwrap_err();
        assert_eq!(error.number, 1, "{error}");
    }
}
