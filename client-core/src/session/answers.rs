//! What each frame of the server means for the requests that are pending.

use ticketing_protocol::ServerFrame;

use super::ledger::{Cut, Sent, State};
use super::request::{Bond, Fate, Kind, Reply, Why};
use super::{Book, Word};
use crate::trouble::Trouble;

impl<R: Reply> Book<R> {
    /// # Errors
    /// The reason to give the session up.
    pub(super) fn answer(&mut self, frame: ServerFrame<'_>) -> Result<(), Trouble> {
        let after_busy = std::mem::take(&mut self.after_busy);
        match frame {
            ServerFrame::Granted { token, owner, key } => self.granted(token, owner, 0, key.as_str()),
            ServerFrame::GrantedUntil { token, owner, ends_ms, key } => {
                self.granted(token, owner, ends_ms, key.as_str())
            }
            ServerFrame::TimedOut { owner, key } => {
                let waits = |kind: Kind| matches!(kind, Kind::Acquire { .. });
                self.settle(Bond::Owner(owner), key.as_str(), "T", waits, |_, _| Fate::TimedOut)
            }
            ServerFrame::Busy { owner, key } => {
                self.after_busy = true;
                self.settle(
                    Bond::Owner(owner),
                    key.as_str(),
                    "B",
                    |_| true,
                    |_, sent| {
                        // The waiter that we took out ourselves has waited its time.
                        if sent.cut == Cut::Done { Fate::TimedOut } else { Fate::Busy }
                    },
                )
            }
            ServerFrame::Released { token, key } => {
                self.settle(Bond::Token(token), key.as_str(), "R", |_| true, |_, _| Fate::Released)
            }
            ServerFrame::NotHeld { token, key } => {
                self.settle(Bond::Token(token), key.as_str(), "N", |_| true, |_, _| Fate::NotHeld)
            }
            ServerFrame::Place { owner, place, waiters, key } => {
                let fate = Fate::Place { place, waiters };
                self.settle(Bond::Place(owner), key.as_str(), "P", |_| true, |_, _| fate)
            }
            ServerFrame::Moved { address } => {
                // Behind a `B` it belongs to that acquire. Otherwise it is all
                // that a release or a verify gets from a node that does not lead.
                if !after_busy {
                    self.moved();
                }
                self.word = Some(Word::Moved(address.into()));
                Ok(())
            }
            ServerFrame::Leader { address } => {
                self.word = Some(Word::Leader(address.into()));
                Ok(())
            }
            ServerFrame::Error { reason } => Err(Trouble::refused(reason)),
        }
    }

    fn granted(&mut self, token: u64, owner: u64, ends_ms: u32, key: &str) -> Result<(), Trouble> {
        self.settle(
            Bond::Owner(owner),
            key,
            "a grant",
            |_| true,
            |request, sent| Fate::Granted { token, ends_at: request.ends_at(sent.at, ends_ms) },
        )
    }

    /// Ends the request that an answer is bound to.
    fn settle(
        &mut self,
        bond: Bond,
        key: &str,
        answer: &'static str,
        fits: impl Fn(Kind) -> bool,
        fate: impl FnOnce(&super::Request, Sent) -> Fate,
    ) -> Result<(), Trouble> {
        let bound = self.ledger.bound(bond, key);
        let fitting =
            bound.filter(|&index| self.ledger.get(index).is_some_and(|slot| fits(slot.request.kind)));
        let slot = fitting.and_then(|index| self.take(index));
        let Some((mut slot, sent)) = slot.and_then(|slot| slot.sent().map(|sent| (slot, sent))) else {
            return Err(Trouble::Unbound(answer));
        };
        let fate = fate(&slot.request, sent);
        slot.reply.tell(&slot.request, fate);
        Ok(())
    }

    /// Lets the releases and verifies go that were sent: another node must be
    /// asked. Both can be asked twice; their records keep late answers bound.
    fn moved(&mut self) {
        for index in self.ledger.indices() {
            let Some(slot) = self.ledger.get_mut(index) else { continue };
            let (Kind::Release { .. } | Kind::Verify { .. }, State::Sent(sent)) =
                (slot.request.kind, &mut slot.state)
            else {
                continue;
            };
            self.owed -= usize::from(std::mem::replace(&mut sent.owed, false));
            if sent.awaited {
                let fate = Fate::Unanswered { sent_at: sent.at, why: Why::Moved };
                slot.reply.tell(&slot.request, fate);
                self.let_go(index);
            }
        }
    }
}
