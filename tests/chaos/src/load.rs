//! Many real clients on few keys, and the record of what they saw.

mod worker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ticketing::TicketBroker;
use ticketing_history::{Event, History, Nanos, Note, Op};
use ticketing_test_support::wait_until;

use crate::{Place, now};

/// What the clients do. Chances are in percent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Clients with connections of their own, each on a thread of its own.
    pub brokers: usize,
    /// How many of each client's tasks want a lock at a time.
    pub workers: usize,
    /// Keys that all of them share.
    pub keys: usize,
    /// Seed of every choice; the interleaving is the machine's.
    pub seed: u64,
    /// Waits to choose from, in seconds.
    pub waits: &'static [u8],
    /// Leases to choose from, in seconds.
    pub leases: &'static [u8],
    /// The longest time for which a lock is held, unless its holder oversleeps.
    pub hold: Duration,
    /// The longest pause of a worker before its next acquire.
    pub pause: Duration,
    /// Chance that a waiting acquire is asked for its place.
    pub place: u32,
    /// Chance that an acquire is given up after a random part of its wait.
    pub give_up: u32,
    /// Chance that a ticket is dropped instead of released.
    pub drop: u32,
    /// Chance that a lock is never released.
    pub forget: u32,
    /// Chance that a lock is held until after its lease.
    pub oversleep: u32,
    /// Chance that a lock is released twice, at the same time or one after the other.
    pub repeat: u32,
    /// Chance that an acquire of unknown outcome is cleared up.
    pub verify: u32,
    /// The secret shared with the servers.
    pub token: &'static str,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            brokers: 4,
            workers: 12,
            keys: 8,
            seed: 1,
            waits: &[0, 1, 3, 10],
            leases: &[2, 5, 30],
            hold: Duration::from_millis(3),
            pause: Duration::from_millis(3),
            place: 10,
            give_up: 3,
            drop: 3,
            forget: 0,
            oversleep: 0,
            repeat: 2,
            verify: 50,
            token: "",
        }
    }
}

/// Clients at work.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Op>>>,
    notes: Mutex<Vec<Note>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Acquires that were granted so far.
    granted: AtomicU64,
    /// The last of them.
    last_grant: AtomicU64,
}

impl Load {
    /// Lets clients loose in a place, on servers at these addresses. They are told of no
    /// others, so their numbers in the history begin at `first_process`.
    ///
    /// # Panics
    /// If a client cannot be made.
    #[must_use]
    pub fn start(&self, place: &Place, addresses: &[SocketAddr], first_process: u64) -> Running {
        let shared = Arc::new(Shared::default());
        let threads = (0..self.brokers).map(|number| {
            let (load, place, addresses) = (self.clone(), place.clone(), addresses.to_vec());
            let (shared, process) = (Arc::clone(&shared), first_process + number as u64);
            std::thread::spawn(move || {
                place.enter();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(load.client(&addresses, process, shared))
            })
        });
        Running { threads: threads.collect(), shared, notes: Mutex::default() }
    }

    /// The life of one client.
    async fn client(self, addresses: &[SocketAddr], process: u64, shared: Arc<Shared>) -> Vec<Op> {
        let addresses = addresses.iter().map(ToString::to_string);
        let broker = TicketBroker::builder().addresses(addresses).token(self.token).build();
        let broker = broker.expect("a broker");
        let record = worker::Record::new(process);
        let longest = self.waits.iter().max().copied().unwrap_or(0);
        let workers: Vec<_> = (0..self.workers)
            .map(|number| {
                let seed = self.seed << 32 | process << 16 | number as u64;
                let worker = worker::Worker::new(
                    self.clone(),
                    seed,
                    broker.clone(),
                    Arc::clone(&shared),
                    record.clone(),
                );
                tokio::spawn(worker.work())
            })
            .collect();
        for worker in workers {
            while !worker.is_finished() && !shared.stop.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // What hangs for longer than anything may is left open in the record.
            let patience = Duration::from_secs(u64::from(longest) + 60);
            if let Ok(Err(error)) = tokio::time::timeout(patience, worker).await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        broker.close().await;
        record.into_ops()
    }
}

impl Running {
    /// How many acquires were granted so far.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.shared.granted.load(Ordering::Relaxed)
    }

    /// Waits until this many more have been granted.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn wait_granted(&self, more: u64, patience: Duration) {
        let enough = self.granted() + more;
        wait_until(&format!("{more} more grants"), patience, || self.granted() >= enough);
    }

    /// When an acquire was granted last.
    #[must_use]
    pub fn last_grant(&self) -> Nanos {
        self.shared.last_grant.load(Ordering::Relaxed)
    }

    /// Does something to the world, and notes it with the times around it.
    pub fn noting<T>(&self, event: Event, deed: impl FnOnce() -> T) -> T {
        let from = now();
        let done = deed();
        let note = Note { from, to: now(), event };
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
        done
    }

    /// The same, for the reader of a violation.
    pub fn remarking<T>(&self, text: &str, deed: impl FnOnce() -> T) -> T {
        self.noting(Event::Remark { text: text.to_owned() }, deed)
    }

    /// Lets the clients come to an end, and returns what they saw.
    ///
    /// # Panics
    /// If a client did.
    #[must_use]
    pub fn finish(self) -> History {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        for thread in self.threads {
            history.ops.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        history.notes = self.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        history.notes.push(Note { from: now(), to: now(), event: Event::End });
        history
    }
}
