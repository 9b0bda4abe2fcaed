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
        let Some((_, since)) = &self.waiting else { return Poll::Pending };
        let until = *since + WAIT;
        // An alarm that is early costs one look; to set it for each message costs more.
        while self.alarm.as_mut().poll(cx).is_ready() {
            if until <= Instant::now() {
                return Poll::Ready(self.waiting.take().map(|(message, _)| message));
            }
            self.alarm.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use openraft::EntryPayload;
    use tokio::sync::mpsc;

    use super::*;
    use crate::types::{Entry, LogId, Vote};

    /// One with the entries after `before` up to `last`, when all up to `committed` is committed.
    fn message(before: u64, last: u64, committed: u64) -> AppendEntriesRequest<Types> {
        let id = |index| LogId::new(1.into(), index);
        let entry = |index| Entry { log_id: id(index), payload: EntryPayload::Blank };
        AppendEntriesRequest {
            vote: Vote::new(1, 1),
            prev_log_id: Some(id(before)),
            entries: (before + 1..=last).map(entry).collect(),
            leader_commit: Some(id(committed)),
        }
    }

    /// How many entries a message has, and what it says is committed.
    fn gist(message: &AppendEntriesRequest<Types>) -> (usize, Option<u64>) {
        (message.entries.len(), message.leader_commit.map(|id| id.index))
    }

    /// A stream, and what it is fed with.
    fn riding() -> (
        mpsc::UnboundedSender<AppendEntriesRequest<Types>>,
        impl Stream<Item = AppendEntriesRequest<Types>> + Unpin,
    ) {
        let (feed, messages) = mpsc::unbounded_channel();
        let messages = futures_util::stream::unfold(messages, |mut messages| async {
            Some((messages.recv().await?, messages))
        });
        (feed, Riding::new(Box::pin(messages)))
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_a_commit_ride_with_entries() {
        let (feed, mut riding) = riding();
        for (before, last, committed) in [(1, 3, 1), (3, 3, 2), (3, 3, 3), (3, 4, 3), (4, 5, 3)] {
            feed.send(message(before, last, committed)).unwrap();
        }
        let begun = Instant::now();
        for expected in [(2, Some(1)), (1, Some(3)), (1, Some(3))] {
            assert_eq!(gist(&riding.next().await.unwrap()), expected);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn they_go_alone_when_nothing_comes() {
        let (feed, mut riding) = riding();
        for round in 0..3 {
            let begun = Instant::now();
            feed.send(message(9, 9, 7)).unwrap();
            assert!(riding.next().now_or_never().is_none());
            tokio::time::advance(WAIT / 2).await;
            // The later ones do not begin to wait anew.
            feed.send(message(9, 9, 8)).unwrap();
            assert_eq!(gist(&riding.next().await.unwrap()), (0, Some(8)));
            let waited = begun.elapsed();
            assert!(waited >= WAIT && waited < 2 * WAIT, "in round {round}: {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_one_is_not_lost() {
        let (feed, mut riding) = riding();
        feed.send(message(9, 9, 9)).unwrap();
        drop(feed);
        let begun = Instant::now();
        assert_eq!(gist(&riding.next().await.unwrap()), (0, Some(9)));
        assert!(riding.next().await.is_none());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
