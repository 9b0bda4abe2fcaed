//! What happened at the rim, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ticketing_protocol::Reason;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of those that a [`Gauge`] counts, as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Counters>, fn(&Counters) -> &Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1(&self.0).0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What happened, and what is there now.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections, from accept to close.
    pub(crate) connections: Gauge,
    /// Those of them that have not authenticated yet.
    pub(crate) unauthenticated: Gauge,
    /// Connections that came in, those refused at once too.
    pub(crate) accepted: Counter,
    /// Connections that authenticated.
    pub(crate) authenticated: Counter,
    /// TLS handshakes that failed or took too long.
    pub(crate) tls_failures: Counter,
    /// Times that a connection could not be accepted for want of descriptors or memory.
    pub(crate) accept_failures: Counter,
    /// Requests that arrived.
    pub(crate) requests: Counter,
    /// Times that a connection was not read on until it had read its answers.
    pub(crate) output_pauses: Counter,
    /// Times that a connection was not read on until its requests in flight were fewer.
    pub(crate) in_flight_pauses: Counter,
    errors: [Counter; Reason::ALL.len()],
}

impl Counters {
    /// Counts one more of what `gauge` counts, until the value is dropped.
    pub(crate) fn count(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> Counted {
        gauge(self).0.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self), gauge)
    }

    /// `E` frames with this reason.
    pub(crate) fn errors(&self, reason: Reason) -> &Counter {
        // `ALL` has every reason; the first stands in for one that it had forgotten.
        let at = Reason::ALL.iter().position(|&other| other == reason).unwrap_or(0);
        &self.errors[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_counts_what_lives() {
        let counters = Arc::new(Counters::default());
        let one = counters.count(|counters| &counters.connections);
        let two = counters.count(|counters| &counters.connections);
        assert_eq!((counters.connections.get(), counters.unauthenticated.get()), (2, 0));
        drop((one, two));
        assert_eq!(counters.connections.get(), 0);
    }

    #[test]
    fn every_reason_has_a_counter_of_its_own() {
        let counters = Counters::default();
        for reason in Reason::ALL {
            counters.errors(reason).add(1);
        }
        assert!(Reason::ALL.into_iter().all(|reason| counters.errors(reason).get() == 1));
    }
}
