//! The requests that are not over, found by what their answers are bound by.

use hashbrown::HashMap;
use slab::Slab;
use ticketing_timers::TimerId;

use super::request::{Bond, Kind, Request};

/// One request that is not over.
#[derive(Debug)]
pub(super) struct Slot<R> {
    pub(super) request: Request,
    pub(super) reply: R,
    pub(super) state: State,
    pub(super) timer: Option<TimerId>,
    /// Tells this request from a later one in the same place.
    pub(super) serial: u64,
    /// The next request with the same bond, in the order of submission.
    next: Option<usize>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Not one byte was handed to the socket.
    Queued,
    /// A byte was.
    Sent(Sent),
}

/// What is known of a request that was handed to the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The moment just before its first byte was handed over.
    pub(super) at: u64,
    /// The wait that was asked for.
    pub(super) wait_secs: u8,
    /// Whether somebody still waits for the answer. If not, this is the record
    /// of a request that was given up, kept so that its answer stays bound.
    pub(super) awaited: bool,
    /// Whether the server is to say something about it. It has said all that it
    /// will about a release or a verify once it said that it does not lead.
    pub(super) owed: bool,
    pub(super) cut: Cut,
    /// Whether a cancel was queued behind it.
    pub(super) cancelled: bool,
}

/// Whether the core itself takes an acquire out of the server's queue, because
/// the wait on the wire, in whole seconds, is longer than what the caller has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    No,
    /// At the caller's deadline.
    Due,
    /// The cancel is on its way; if the waiter leaves the queue, its wait ran out.
    Done,
}

impl<R> Slot<R> {
    /// What is known since the first byte was handed over.
    pub(super) const fn sent(&self) -> Option<Sent> {
        match self.state {
            State::Queued => None,
            State::Sent(sent) => Some(sent),
        }
    }

    const fn is_acquire(&self) -> bool {
        matches!(self.request.kind, Kind::Acquire { .. })
    }
}

/// The table of all of them.
#[derive(Debug)]
pub(super) struct Ledger<R> {
    slots: Slab<Slot<R>>,
    /// The first request of each bond. Owners are unique; a token can be
    /// released by several callers at once.
    heads: HashMap<Bond, usize>,
    serial: u64,
}

impl<R> Ledger<R> {
    pub(super) fn new() -> Self {
        Self { slots: Slab::new(), heads: HashMap::new(), serial: 0 }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Slot<R>> {
        self.slots.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot<R>> {
        self.slots.get_mut(index)
    }

    /// Whether an answer could not be told from that of a request that is here:
    /// the owner of an acquire is unique, and a verify has the answers of its acquire.
    pub(super) fn clashes(&self, request: &Request) -> bool {
        let Some(&head) = self.heads.get(&request.bond()) else { return false };
        match request.kind {
            Kind::Acquire { .. } => true,
            Kind::Verify { .. } => {
                self.chain(head).any(|index| self.slots.get(index).is_some_and(Slot::is_acquire))
            }
            Kind::Place { .. } | Kind::Release { .. } => false,
        }
    }

    pub(super) fn indices(&self) -> Vec<usize> {
        self.slots.iter().map(|(index, _)| index).collect()
    }

    /// Takes in a request that is not sent yet; returns its index and serial.
    pub(super) fn insert(&mut self, request: Request, reply: R) -> (usize, u64) {
        let bond = request.bond();
        self.serial += 1;
        let serial = self.serial;
        let slot = Slot { request, reply, state: State::Queued, timer: None, serial, next: None };
        let index = self.slots.insert(slot);
        match self.heads.get(&bond).copied() {
            None => {
                self.heads.insert(bond, index);
            }
            Some(head) => {
                let last = self.chain(head).last().unwrap_or(head);
                if let Some(slot) = self.slots.get_mut(last) {
                    slot.next = Some(index);
                }
            }
        }
        (index, serial)
    }

    /// The request that an answer belongs to: the first that was sent and is
    /// still awaited, else the first record.
    ///
    /// Awaited ones come first because whatever the server says about a lock
    /// is as true for them: a release that was asked for again may see the
    /// answer of the first try.
    pub(super) fn bound(&self, bond: Bond, key: &str) -> Option<usize> {
        let head = self.heads.get(&bond).copied()?;
        let mut record = None;
        for index in self.chain(head) {
            let slot = self.slots.get(index)?;
            match slot.state {
                State::Sent(sent) if *slot.request.key == *key => {
                    if sent.awaited {
                        return Some(index);
                    }
                    record = record.or(Some(index));
                }
                State::Sent(_) | State::Queued => {}
            }
        }
        record
    }

    /// The first request with this bond and key of which nothing was sent.
    pub(super) fn queued(&self, bond: Bond, key: &str) -> Option<usize> {
        let head = self.heads.get(&bond).copied()?;
        self.chain(head).find(|&index| {
            self.slots.get(index).is_some_and(|slot| slot.sent().is_none() && *slot.request.key == *key)
        })
    }

    /// Takes a request out.
    pub(super) fn remove(&mut self, index: usize) -> Option<Slot<R>> {
        let slot = self.slots.try_remove(index)?;
        let bond = slot.request.bond();
        let head = self.heads.get(&bond).copied()?;
        if head != index {
            let before = self.chain(head).find(|&other| self.next(other) == Some(index));
            if let Some(before) = before.and_then(|before| self.slots.get_mut(before)) {
                before.next = slot.next;
            }
        } else if let Some(next) = slot.next {
            self.heads.insert(bond, next);
        } else {
            self.heads.remove(&bond);
        }
        Some(slot)
    }

    fn next(&self, index: usize) -> Option<usize> {
        self.slots.get(index).and_then(|slot| slot.next)
    }

    fn chain(&self, head: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(head), |&index| self.next(index))
    }
}
