//! Through what the driver commits its batches.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use ticketing_cluster::{Cluster, Standing};
use ticketing_engine::{Batch, Fate, Office, Seq, record};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Batches that wait for a majority at a time. While they do, what arrives gathers
/// for the next one: fewer and larger batches are worth more than many in flight.
const IN_FLIGHT: usize = 2;

/// A batch of which nothing was heard for this long: nobody knows.
const PATIENCE: Duration = Duration::from_secs(10);

/// Through what batches are committed.
#[derive(Debug)]
pub(crate) enum Commit {
    /// At once: nobody else has to agree, and nothing is kept.
    Memory,
    /// The log: that of a cluster, or of a server alone on its disk.
    Log(Proposals),
}

/// What happens to a driver from that side.
#[derive(Debug)]
pub(crate) enum Event {
    /// What became of a batch.
    Told(Office, Seq, Fate),
    /// This node, or its leader, has changed.
    Standing(Box<Standing>),
}

impl Commit {
    /// The next event. Nothing is lost if it is dropped.
    pub(crate) async fn next(&mut self) -> Event {
        match self {
            Self::Memory => pending().await,
            Self::Log(proposals) => proposals.next().await,
        }
    }

    /// The next event, if there is one already.
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        match self {
            Self::Memory => None,
            Self::Log(proposals) => proposals.try_next(),
        }
    }

    /// When [`Commit::try_next`] has something to say by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Memory => None,
            Self::Log(proposals) => proposals.in_flight.front().map(|(.., until)| *until),
        }
    }
}

/// Batches on their way through the log.
#[derive(Debug)]
pub(crate) struct Proposals {
    pub(crate) cluster: Cluster,
    standing: watch::Receiver<Standing>,
    teller: mpsc::UnboundedSender<(Office, Seq, Fate)>,
    /// Each batch in flight tells once, so there are never many.
    told: mpsc::UnboundedReceiver<(Office, Seq, Fate)>,
    in_flight: VecDeque<(Office, Seq, Instant)>,
}

impl Proposals {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let mut standing = cluster.standing();
        standing.mark_changed();
        let (teller, told) = mpsc::unbounded_channel();
        Self { cluster, standing, teller, told, in_flight: VecDeque::new() }
    }

    /// Whether another batch may be proposed.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT
    }

    pub(crate) async fn propose(&mut self, office: Office, batch: &Batch) {
        let mut bytes = Vec::new();
        record::encode(batch.effects(), &mut bytes);
        let (seq, teller) = (batch.seq(), self.teller.clone());
        self.in_flight.push_back((office, seq, Instant::now() + PATIENCE));
        let told = move |fate| {
            // Without a driver the server itself is ending.
            let _ = teller.send((office, seq, fate));
        };
        self.cluster.propose(office, seq, Bytes::from(bytes), told).await;
    }

    async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                changed = self.standing.changed() => match changed {
                    Ok(()) => return self.standing(),
                    // The process is ending.
                    Err(_) => return pending().await,
                },
                Some((office, seq, fate)) = self.told.recv() => {
                    if let Some(event) = self.settled(office, seq, fate) {
                        return event;
                    }
                }
            }
        }
    }

    fn try_next(&mut self) -> Option<Event> {
        if self.standing.has_changed().unwrap_or(false) {
            return Some(self.standing());
        }
        while let Ok((office, seq, fate)) = self.told.try_recv() {
            if let Some(event) = self.settled(office, seq, fate) {
                return Some(event);
            }
        }
        let (office, seq, _) = self.in_flight.pop_front_if(|(.., until)| *until <= Instant::now())?;
        Some(Event::Told(office, seq, Fate::Unknown))
    }

    fn standing(&mut self) -> Event {
        Event::Standing(Box::new(self.standing.borrow_and_update().clone()))
    }

    /// `None`: it was given up before.
    fn settled(&mut self, office: Office, seq: Seq, fate: Fate) -> Option<Event> {
        let place = self
            .in_flight
            .iter()
            .position(|(in_flight, number, _)| (*in_flight, *number) == (office, seq))?;
        self.in_flight.remove(place);
        Some(Event::Told(office, seq, fate))
    }
}
