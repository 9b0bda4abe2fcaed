//! Answers that a session has taken and not handed to its socket yet.

use ticketing_protocol::{Decoder, Extension, Reason, ServerFrame, ServerToClient};

use crate::conn::{KEPT_BYTES, LostGrant};

/// Encoded frames, from a frame boundary on, and how much of them has left.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    frames: Vec<u8>,
    sent: usize,
}

impl Unsent {
    /// The bytes that have not left.
    pub(crate) fn rest(&self) -> &[u8] {
        self.frames.get(self.sent..).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Where whole frames can be put; empty if everything has left.
    pub(crate) fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.frames
    }

    /// So many bytes were handed to the socket.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= self.frames.len() {
            self.sent = 0;
            self.frames.clear();
            self.frames.shrink_to(KEPT_BYTES);
        }
    }

    pub(crate) fn say(&mut self, frame: ServerFrame<'_>) {
        frame.encode(&mut self.frames);
    }

    pub(crate) fn say_why(&mut self, reason: Reason) {
        self.say(ServerFrame::Error { reason: reason.as_str() });
    }

    /// Throws away the frames of which no byte has left, and returns the grants among them.
    pub(crate) fn cut(&mut self, extension: Extension) -> Vec<LostGrant> {
        let (mut lost, mut end, mut kept, mut frame_bytes) = (Vec::new(), 0, 0, Vec::new());
        let sent = self.sent;
        // The frames are our own, so they are well formed.
        let _ = Decoder::<ServerToClient>::new(extension).feed(&self.frames, |frame| {
            frame_bytes.clear();
            frame.encode(&mut frame_bytes);
            let start = end;
            end += frame_bytes.len();
            if start < sent {
                kept = end;
            } else if let Some(grant) = grant(frame) {
                lost.push(grant);
            }
        });
        self.frames.truncate(kept);
        lost
    }
}

/// The grant, if the frame brings one. The answer to a verify tells of a grant
/// that was given before, with an end that is unknown.
fn grant(frame: ServerFrame<'_>) -> Option<LostGrant> {
    match frame {
        ServerFrame::Granted { token, key, .. } => Some((token, key)),
        ServerFrame::GrantedUntil { token, ends_ms, key, .. } => (ends_ms != 0).then_some((token, key)),
        ServerFrame::TimedOut { .. }
        | ServerFrame::Busy { .. }
        | ServerFrame::Released { .. }
        | ServerFrame::NotHeld { .. }
        | ServerFrame::Place { .. }
        | ServerFrame::Moved { .. }
        | ServerFrame::Leader { .. }
        | ServerFrame::Error { .. } => None,
    }
    .map(|(token, key)| LostGrant { token, key: key.as_bytes().into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{answer, key};

    proptest! {
        /// Against a count that knows the frames one by one.
        #[test]
        fn exactly_the_frames_of_which_no_byte_left_are_cut(
            frames in prop::collection::vec((0u8..5, 1u64..1000, "[a-z\\x00]{1,40}"), 0..30),
            part in 0.0..1.0f64,
        ) {
            let frames = frames.iter().map(|(kind, token, name)| {
                let (token, key) = (*token, key(name));
                match kind {
                    0 => ServerFrame::GrantedUntil { token, owner: 1, ends_ms: 1000, key },
                    1 => ServerFrame::GrantedUntil { token, owner: 1, ends_ms: 0, key },
                    2 => ServerFrame::Granted { token, owner: 0x0a0a_0a0a, key },
                    3 => ServerFrame::Released { token, key },
                    _ => ServerFrame::Leader { address: "host:1" },
                }
            }).collect::<Vec<_>>();
            let mut unsent = Unsent::default();
            frames.iter().for_each(|frame| unsent.say(*frame));
            let total = unsent.rest().len();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let sent = (part * total as f64) as usize;
            unsent.advance(sent);

            let (mut start, mut kept, mut expected) = (0, Vec::new(), Vec::new());
            for frame in &frames {
                let bytes = answer(*frame);
                if start < sent {
                    kept.extend_from_slice(&bytes);
                } else if let ServerFrame::GrantedUntil { token, ends_ms: 1000, key, .. }
                    | ServerFrame::Granted { token, key, .. } = frame
                {
                    expected.push(LostGrant { token: *token, key: key.as_bytes().into() });
                }
                start += bytes.len();
            }
            prop_assert_eq!(unsent.cut(Extension::On), expected);
            prop_assert_eq!(unsent.rest(), &kept[sent.min(kept.len())..]);
        }
    }

    #[test]
    fn an_idle_connection_keeps_little_memory() {
        let mut unsent = Unsent::default();
        unsent.frames().resize(1 << 20, 0);
        unsent.advance(1 << 20);
        assert!(unsent.is_empty() && unsent.frames.capacity() <= KEPT_BYTES);
    }
}
