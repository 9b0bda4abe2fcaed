//! News of a commit ride with the next entries.
//!
//! As soon as a majority has an entry, openraft tells the others that it is
//! committed, in a message without entries. Under load that is every second message,
//! and the next one with entries says the same and more.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{Fuse, Stream, StreamExt as _};
use openraft::raft::AppendEntriesRequest;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::types::Types;

/// How long a message without entries waits for one with them. The leader answers its
/// clients without it; the others are behind for as long.
const WAIT: Duration = Duration::from_millis(5);

/// The messages of one stream to one peer, but those without entries that the next
/// one makes needless.
///
/// That one comes from the same leader and starts where they did, so the peer accepts
/// it only if it would have accepted them; and openraft takes an answer as one to all
/// messages up to what it acknowledges.
pub(crate) struct Riding<S> {
    messages: Fuse<S>,
    waiting: Option<(AppendEntriesRequest<Types>, Instant)>,
    alarm: Pin<Box<Sleep>>,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Riding<S> {
    pub(crate) fn new(messages: S) -> Self {
        Self { messages: messages.fuse(), waiting: None, alarm: Box::pin(sleep_until(Instant::now())) }
    }
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Stream for Riding<S> {
    type Item = AppendEntriesRequest<Types>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.messages.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) if message.entries.is_empty() => {
                    let since = self.waiting.take().map_or_else(Instant::now, |(_, since)| since);
                    self.waiting = Some((message, since));
                }
                Poll::Ready(Some(message)) => {
                    self.waiting = None;
                    return Poll::Ready(Some(message));
                }
                // None comes behind it.
                Poll::Ready(None) => return Poll::Ready(self.waiting.take().map(|(message, _)| message)),
                Poll::Pending => break,
            }
        }
        while let Some((_, since)) = self.waiting {
            let until = since + WAIT;
            if until <= Instant::now() {
                return Poll::Ready(self.waiting.take().map(|(message, _)| message));
            }
            // An alarm that is early costs one look; to set it for each message costs more.
            if self.alarm.is_elapsed() {
                self.alarm.as_mut().reset(until);
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Pending
    }
}
