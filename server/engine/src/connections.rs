//! What the engine knows of each connection.

use std::collections::HashMap;

use crate::ConnId;
use crate::hash::Dense;
use crate::waiters::NONE;

/// One connection that asked something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Acquires that are queued, or granted and not committed.
    pub(crate) in_flight: u32,
    /// Answers that were decided and not yet given out.
    unanswered: u32,
    /// Head of the list of its waiters.
    pub(crate) first_waiter: u32,
    closed: bool,
}

/// The connections, from their first request to their close and last answer.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_id: HashMap<ConnId, Connection, Dense>,
}

impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.by_id.get(&id)
    }

    /// The connection, made known if it is new.
    pub(crate) fn entry(&mut self, id: ConnId) -> &mut Connection {
        let new = Connection { in_flight: 0, unanswered: 0, first_waiter: NONE, closed: false };
        self.by_id.entry(id).or_insert(new)
    }

    /// One acquire of the connection has its fate. Returns whether the
    /// connection is still there to be told.
    pub(crate) fn settle_acquire(&mut self, id: ConnId) -> bool {
        self.by_id.get_mut(&id).is_some_and(|connection| {
            connection.in_flight = connection.in_flight.saturating_sub(1);
            !connection.closed
        })
    }

    /// An answer was decided.
    pub(crate) fn owe(&mut self, id: ConnId) {
        self.entry(id).unanswered += 1;
    }

    /// An answer goes out. Returns whether the connection is still there.
    pub(crate) fn pay(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.by_id.get_mut(&id) else { return false };
        connection.unanswered -= 1;
        let (closed, owed) = (connection.closed, connection.unanswered);
        if closed && owed == 0 {
            self.forget(id);
        }
        !closed
    }

    /// Whether an answer was decided that has not gone out.
    pub(crate) fn owes(&self, id: ConnId) -> bool {
        self.by_id.get(&id).is_some_and(|connection| connection.unanswered > 0)
    }

    /// The connection ended. Its waiters have been taken out.
    pub(crate) fn close(&mut self, id: ConnId) {
        let Some(connection) = self.by_id.get_mut(&id) else { return };
        connection.closed = true;
        if connection.unanswered == 0 {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: ConnId) {
        self.by_id.remove(&id);
        if self.by_id.capacity() > 1024 && self.by_id.len() < self.by_id.capacity() / 8 {
            self.by_id.shrink_to(self.by_id.len() * 2);
        }
    }
}
