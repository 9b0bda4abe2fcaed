//! Signs of life: when to send one, and when to give the other end up.

use std::time::Duration;

use ticketing_protocol::limits::{IDLE_KEEP_ALIVE, PENDING_KEEP_ALIVE};

use crate::clock::{SECOND, nanos};
use crate::trouble::Trouble;

/// A server that sends keep-alives and then says nothing for this long while
/// requests are pending has stopped, even if its kernel still acknowledges.
const SILENCE: u64 = 6 * SECOND;

/// A write that makes no progress for this long never will.
const STUCK: u64 = 5 * SECOND;

#[derive(Debug)]
pub(super) struct Pulse {
    heard_at: u64,
    wrote_at: u64,
    /// Since when requests are pending.
    pending_since: Option<u64>,
    /// Since when the socket takes nothing though there is something to write.
    blocked_since: Option<u64>,
    /// Whether the server ever sent a keep-alive. Without that, silence says nothing.
    keeps_alive: bool,
}

impl Pulse {
    pub(super) const fn new(now: u64) -> Self {
        Self { heard_at: now, wrote_at: now, pending_since: None, blocked_since: None, keeps_alive: false }
    }

    pub(super) const fn heard(&mut self, now: u64, keep_alive: bool) {
        self.heard_at = now;
        self.keeps_alive |= keep_alive;
    }

    pub(super) const fn wrote(&mut self, now: u64) {
        self.wrote_at = now;
        self.blocked_since = None;
    }

    pub(super) const fn blocked(&mut self, now: u64) {
        if self.blocked_since.is_none() {
            self.blocked_since = Some(now);
        }
    }

    pub(super) const fn unblocked(&mut self) {
        self.blocked_since = None;
    }

    pub(super) fn pending(&mut self, now: u64, any: bool) {
        self.pending_since = any.then(|| self.pending_since.unwrap_or(now));
    }

    /// Whether a keep-alive is to be sent now.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.blocked_since.is_none() && self.due_at() <= now
    }

    /// # Errors
    /// The reason to give the session up.
    pub(super) fn check(&self, now: u64) -> Result<(), Trouble> {
        if self.blocked_since.is_some_and(|since| now.saturating_sub(since) >= STUCK) {
            return Err(Trouble::Stuck);
        }
        if self.silent_at().is_some_and(|at| at <= now) {
            return Err(Trouble::Silent);
        }
        Ok(())
    }

    /// When to look again.
    pub(super) fn next_deadline(&self) -> u64 {
        let blocked = self.blocked_since.map_or(u64::MAX, |since| since + STUCK);
        let due = if self.blocked_since.is_none() { self.due_at() } else { u64::MAX };
        due.min(blocked).min(self.silent_at().unwrap_or(u64::MAX))
    }

    fn due_at(&self) -> u64 {
        const fn pause(pending: bool) -> Duration {
            if pending { PENDING_KEEP_ALIVE } else { IDLE_KEEP_ALIVE }
        }
        self.wrote_at.saturating_add(nanos(pause(self.pending_since.is_some())))
    }

    /// When the silence has lasted too long. It cannot begin before there was
    /// something to answer.
    fn silent_at(&self) -> Option<u64> {
        let since = self.pending_since.filter(|_| self.keeps_alive)?;
        Some(since.max(self.heard_at).saturating_add(SILENCE))
    }
}
