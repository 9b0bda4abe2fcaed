//! A lock that is held.

use std::time::Duration;

use crate::{Domain, TicketError};

/// A lock that is held. Dropping it gives the lock back in the background;
/// [`Ticket::release`] says whether that worked.
#[derive(Debug)]
pub struct Ticket(Grant);

/// A held lock as plain data; nothing releases it by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lock's name.
    pub key: String,
    /// The fencing token.
    pub token: u64,
    /// The owner number of the acquire.
    pub owner: u64,
    /// The fencing domain, where the server named one.
    pub domain: Option<Domain>,
    /// What was left of the lease at that moment.
    pub remaining: Duration,
}

impl Ticket {
    /// The lock's name.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The fencing token: greater than that of every earlier grant in the domain.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// The owner number of the acquire, as the server knows it.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.0.owner
    }

    /// The fencing domain within which tokens compare, where the server named one.
    #[must_use]
    pub fn domain(&self) -> Option<Domain> {
        self.0.domain
    }

    /// What is surely left of the lease, also after a suspend; zero when none.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// `NotHeld`: the lease had run out. `ReleaseUnconfirmed`: no word within 5 s.
    pub async fn release(self) -> Result<(), TicketError> {
        Ok(())
    }

    /// Turns the ticket into plain data; nothing releases it by itself then.
    #[must_use]
    pub fn detach(self) -> Grant {
        self.0
    }
}

/// How a verified acquire stands.
#[derive(Debug)]
pub enum Verdict {
    /// The lock is held after all.
    Held(Ticket),
    /// It was not acquired, and never will be.
    NotAcquired,
}
