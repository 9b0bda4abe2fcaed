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
