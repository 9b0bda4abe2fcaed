//! A client that insists: a leader that is starved of processor time may have to give
//! way at any moment, and then the next one is asked.

use std::time::{Duration, Instant};

use ticketing_chaos::Cluster;
use ticketing_test_support::{Raw, Reply};

use crate::PATIENCE;

/// It has a session with whichever node leads, when it has one.
pub(crate) struct Client<'c> {
    cluster: &'c Cluster<'c>,
    session: Option<Raw>,
}

impl<'c> Client<'c> {
    pub(crate) const fn new(cluster: &'c Cluster<'_>) -> Self {
        Self { cluster, session: None }
    }

    /// Asks until something definite is said; also returns how often it had to.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: &[u8]) -> (Reply, u32) {
        let start = Instant::now();
        let mut tries = 0;
        loop {
            let found = self.session.take().or_else(|| self.cluster.try_session(self.cluster.wait_leader()));
            let Some(mut session) = found else {
                assert!(start.elapsed() < 2 * PATIENCE, "no leader lets a client in");
                continue;
            };
            tries += 1;
            let sent = session.try_send(request).is_ok();
            let answers =
                std::iter::from_fn(|| session.read_within(Duration::from_secs(65)).filter(|_| sent));
            match { answers }.find(|reply| !matches!(reply, Reply::Leader(_) | Reply::Moved(_))) {
                Some(reply) if !matches!(reply, Reply::Busy { .. } | Reply::Error(_)) => {
                    self.session = Some(session);
                    return (reply, tries);
                }
                other => assert!(start.elapsed() < 2 * PATIENCE, "nothing definite is said: {other:?}"),
            }
        }
    }

    /// Takes a key that is free or will be within its wait; returns its token.
    #[track_caller]
    pub(crate) fn take(&mut self, key: &str, wait: u8, lease: u8) -> u64 {
        match self.ask(&acquire(key, wait, lease)).0 {
            Reply::Granted { token, .. } => token,
            other => panic!("{other:?} instead of a grant of {key}"),
        }
    }

    /// Whether a key is held; if it is not, it is taken for a second.
    #[track_caller]
    pub(crate) fn is_held(&mut self, key: &str) -> bool {
        matches!(self.ask(&acquire(key, 0, 1)).0, Reply::TimedOut { .. })
    }

    /// Releases a key that is held under this token.
    #[track_caller]
    pub(crate) fn release(&mut self, key: &str, token: u64) {
        let (reply, tries) = self.ask(&ticketing_test_support::wire::release(key, token));
        // The answer of an earlier try may have been lost.
        let lost = tries > 1 && reply == Reply::not_held(token, key);
        assert!(lost || reply == Reply::released(token, key), "{reply:?}");
    }
}

/// An acquire of a new owner.
fn acquire(key: &str, wait: u8, lease: u8) -> Vec<u8> {
    ticketing_test_support::wire::acquire(key, rand::random(), wait, lease)
}
