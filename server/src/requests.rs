//! Requests on their way from a session to the driver.

use ticketing_engine::{Nanos, Request};
use ticketing_protocol::ClientFrame;

/// Requests of one connection that arrived together. All keys lie in one
/// buffer, so that a request costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    received: Nanos,
    items: Vec<(What, u8)>,
    keys: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Acquire { wait_secs: u8, lease_secs: u8, owner: u64 },
    Release { token: u64 },
    Cancel { owner: u64 },
    Place { owner: u64 },
    Verify { owner: u64 },
}

/// How many answers requests are waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) acquires: u32,
    pub(crate) others: u32,
}

impl Requests {
    /// Adds a request; `received` is when its frame arrived.
    pub(crate) fn push(&mut self, frame: ClientFrame<'_>, received: Nanos) {
        let (what, key) = match frame {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                (What::Acquire { wait_secs: wait, lease_secs: lease, owner }, key)
            }
            ClientFrame::Release { token, key } => (What::Release { token }, key),
            ClientFrame::Cancel { owner, key } => (What::Cancel { owner }, key),
            ClientFrame::Place { owner, key } => (What::Place { owner }, key),
            ClientFrame::Verify { owner, key } => (What::Verify { owner }, key),
        };
        // Read together, arrived together.
        self.received = received;
        // A key has at most 128 bytes.
        self.items.push((what, u8::try_from(key.as_bytes().len()).unwrap_or(u8::MAX)));
        self.keys.extend_from_slice(key.as_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many answers they will get. A cancel has none.
    pub(crate) fn owed(&self) -> Owed {
        let mut owed = Owed::default();
        for (what, _) in &self.items {
            match what {
                What::Acquire { .. } => owed.acquires += 1,
                What::Release { .. } | What::Place { .. } | What::Verify { .. } => owed.others += 1,
                What::Cancel { .. } => {}
            }
        }
        owed
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut keys = self.keys.as_slice();
        self.items.iter().map(move |&(_, key_bytes)| {
            let key;
            (key, keys) = keys.split_at(usize::from(key_bytes).min(keys.len()));
            key
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Request<'_>> {
        self.items.iter().zip(self.keys()).map(|(&(what, _), key)| match what {
            What::Acquire { wait_secs, lease_secs, owner } => {
                Request::Acquire { wait_secs, lease_secs, owner, key, received: self.received }
            }
            What::Release { token } => Request::Release { token, key },
            What::Cancel { owner } => Request::Cancel { owner, key },
            What::Place { owner } => Request::Place { owner, key },
            What::Verify { owner } => Request::Verify { owner, key },
        })
    }
}

#[cfg(test)]
mod tests {
    use ticketing_protocol::Key;

    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let (long, short) = ("k".repeat(128), "s");
        let key = |text| Key::new(text).unwrap();
        let mut requests = Requests::default();
        for frame in [
            ClientFrame::Acquire { wait: 3, lease: 9, owner: 1, key: key(&long) },
            ClientFrame::Release { token: 2, key: key(short) },
            ClientFrame::Cancel { owner: 3, key: key(&long) },
            ClientFrame::Place { owner: 4, key: key(short) },
            ClientFrame::Verify { owner: 5, key: key(short) },
        ] {
            requests.push(frame, 77);
        }
        assert_eq!(requests.owed(), Owed { acquires: 1, others: 3 });
        let (long, short) = (long.as_bytes(), short.as_bytes());
        assert_eq!(
            requests.iter().collect::<Vec<_>>(),
            [
                Request::Acquire { wait_secs: 3, lease_secs: 9, owner: 1, key: long, received: 77 },
                Request::Release { token: 2, key: short },
                Request::Cancel { owner: 3, key: long },
                Request::Place { owner: 4, key: short },
                Request::Verify { owner: 5, key: short },
            ]
        );
    }
}
