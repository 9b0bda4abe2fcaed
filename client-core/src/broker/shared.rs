//! What the broker's tasks and its callers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::directory::{Directory, Phase, Route};
use crate::clock;
use crate::link::{Config, Link};
use crate::release::ReleaseJob;
use crate::trouble::{At, Trouble};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    pub(crate) config: Config,
    /// For timers, whatever executor polls a caller's future.
    runtime: Handle,
    max_pending: usize,
    pending: [AtomicUsize; 4],
    next_owner: AtomicU64,
    turn: AtomicUsize,
    /// Each job brings its permit: those bound how many there are.
    compensations: mpsc::UnboundedSender<ReleaseJob>,
}

/// What a pending request counts as. Releases have a bound of their own, so
/// that waiting acquires can never keep a lock from being given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Acquire,
    /// The release of a grant that came too late for its acquire, in whose place it
    /// stands: however many acquires are given up at once, there is room for it.
    Late,
    Release,
    /// The release of a ticket that was dropped.
    Dropped,
}

/// How many dropped tickets may wait for their release.
const MAX_DROPPED: usize = 16_384;

/// The right to have one request pending.
#[derive(Debug)]
pub(crate) struct Permit {
    shared: Arc<Shared>,
    lane: Lane,
}

impl Permit {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Permit {
    /// The acquire was granted to nobody: its place is that of the release now.
    pub(crate) fn for_late_grant(mut self) -> Self {
        self.shared.count(Lane::Late).fetch_add(1, Ordering::AcqRel);
        self.shared.count(self.lane).fetch_sub(1, Ordering::AcqRel);
        self.lane = Lane::Late;
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.count(self.lane).fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why there is no session to ask.
#[derive(Debug)]
pub(crate) enum NoLink {
    /// The broker is closed.
    Closed,
    /// Every connection fails for an error of configuration.
    Refused(Arc<At<Trouble>>),
    /// None came up in time.
    Late(Option<Arc<At<Trouble>>>),
}

impl Shared {
    pub(crate) fn new(
        runtime: Handle,
        config: Config,
        directory: Directory,
        max_pending: usize,
        compensations: mpsc::UnboundedSender<ReleaseJob>,
    ) -> Self {
        Self {
            directory,
            config,
            runtime,
            max_pending,
            pending: Default::default(),
            // A random start and then one after the other: unique here for
            // ever, and among all clients as far as 64 bits go.
            next_owner: AtomicU64::new(rand::random()),
            turn: AtomicUsize::new(0),
            compensations,
        }
    }

    pub(crate) fn next_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) const fn max_pending(&self) -> usize {
        self.max_pending
    }

    /// The right to one more request, unless the bound is reached.
    pub(crate) fn admit(self: &Arc<Self>, lane: Lane) -> Option<Permit> {
        let permit = self.admit_beyond(lane);
        let (pending, most) = match lane {
            Lane::Acquire => (self.pending(Lane::Acquire) + self.pending(Lane::Late), self.max_pending),
            Lane::Late | Lane::Release => (self.pending(lane), self.max_pending),
            Lane::Dropped => (self.pending(lane), MAX_DROPPED),
        };
        (pending <= most).then_some(permit)
    }

    /// The right to one more request whatever is pending; its own queue bounds it.
    pub(crate) fn admit_beyond(self: &Arc<Self>, lane: Lane) -> Permit {
        self.count(lane).fetch_add(1, Ordering::AcqRel);
        Permit { shared: Arc::clone(self), lane }
    }

    /// How many requests are pending, records of unanswered ones included.
    pub(crate) fn pending(&self, lane: Lane) -> usize {
        self.count(lane).load(Ordering::Acquire)
    }

    const fn count(&self, lane: Lane) -> &AtomicUsize {
        let [acquires, late, releases, dropped] = &self.pending;
        match lane {
            Lane::Acquire => acquires,
            Lane::Late => late,
            Lane::Release => releases,
            Lane::Dropped => dropped,
        }
    }

    /// Queues a release that nobody waits for. With the broker gone, the lease has to
    /// end the lock.
    pub(crate) fn compensate(&self, job: ReleaseJob) {
        if let Err(refused) = self.compensations.send(job) {
            let job = refused.0;
            tracing::warn!(
                key = job.key(),
                token = job.token(),
                "the broker is closed: a lock that was not released is left to its lease"
            );
        }
    }

    /// A session to ask, by turns.
    pub(crate) fn pick(&self) -> Option<Arc<Link>> {
        self.directory.route().pick(self.next_turn()).cloned()
    }

    /// Waits until `choose` finds a session, up to `until`. Once the broker is
    /// past `last_phase` there will be none.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn link(
        self: Arc<Self>,
        until: u64,
        last_phase: Phase,
        mut choose: impl FnMut(&Route) -> Option<Arc<Link>>,
    ) -> Result<Arc<Link>, NoLink> {
        let mut routes = self.directory.watch();
        let mut timer = std::pin::pin!(self.sleep_until(until));
        loop {
            {
                let route = routes.borrow_and_update();
                if route.phase > last_phase {
                    return Err(NoLink::Closed);
                }
                if let Some(link) = choose(&route) {
                    return Ok(link);
                }
                if let Some(refusal) = &route.refusal {
                    return Err(NoLink::Refused(Arc::clone(refusal)));
                }
            }
            tokio::select! {
                // The end of the runtime shows as a phase; its timers must not be asked after that.
                biased;
                _ = routes.changed() => {}
                () = &mut timer => return Err(NoLink::Late(routes.borrow().trouble.clone())),
            }
        }
    }

    /// Waits until the broker has come to a phase.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`.
        let _ = self.directory.watch().wait_for(|route| route.phase >= phase).await;
    }

    /// Waits that long, unless the broker ends before.
    pub(crate) async fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            tokio::select! {
                biased;
                () = self.reached(Phase::Done) => {}
                () = self.sleep(pause) => {}
            }
        }
    }

    fn sleep_until(&self, at: u64) -> Sleep {
        self.sleep(Duration::from_nanos(at.saturating_sub(clock::now())))
    }

    fn sleep(&self, pause: Duration) -> Sleep {
        let _runtime = self.runtime.enter();
        // Longer than any wait, and far from the end of the clock.
        const LONGEST: Duration = Duration::from_secs(86_400 * 365);
        tokio::time::sleep_until(Instant::now() + pause.min(LONGEST))
    }
}

/// What keeps the tasks alive: each broker value, ticket and acquire holds it.
#[derive(Debug)]
pub(crate) struct Lifeline(pub(crate) Arc<Shared>);

impl Drop for Lifeline {
    fn drop(&mut self) {
        // Compensations that are queued still go out.
        self.0.directory.advance(Phase::Draining);
    }
}
