//! A hundred thousand waiters of one key: what each costs, and how fast they
//! get their turn or leave.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, ensure};
use ticketing_protocol::{ClientFrame, Key, ServerFrame};

use super::bytes_each;
use crate::raw::Connection;
use crate::report::{Finding, Target};
use crate::stage::Stage;

/// Under the server's default of requests in flight.
const WAITERS_PER_CONNECTION: u32 = 10_000;
const LEASE_SECS: u8 = 250;
const WAIT_SECS: u8 = 255;

pub(crate) fn measure(stage: &Stage) -> Result<Vec<Finding>> {
    let waiters = stage.plan.waiters;
    let server = stage.server()?;
    let mut crowd = Crowd::open(server.addr(), waiters)?;

    stage.step("waiters: queueing");
    let before = server.usage().rss;
    let queued = crowd.queue()?;
    let bytes = bytes_each(before, server.usage().rss, waiters);

    stage.step("waiters: each gets its turn");
    let started = Instant::now();
    crowd.drain()?;
    let drained = f64::from(waiters) / started.elapsed().as_secs_f64();

    stage.step("waiters: all are cancelled");
    crowd.queue()?;
    let started = Instant::now();
    crowd.cancel()?;
    let cancelled = started.elapsed().as_secs_f64();

    stage.step("waiters: their connections close");
    crowd.queue()?;
    let started = Instant::now();
    crowd.leave()?;
    let left = started.elapsed().as_secs_f64();

    Ok(vec![
        Finding::new("memory of a waiter", bytes, "B", Target::AtMost(300.0)),
        Finding::new("waiters queued on one key", queued, "/s", Target::None),
        Finding::new("waiters drained, one after the other", drained, "/s", Target::AtLeast(20_000.0)),
        Finding::new("all waiters cancelled", cancelled, "s", Target::AtMost(2.0)),
        Finding::new("all waiters gone with their connections", left, "s", Target::AtMost(2.0)),
    ])
}

/// One holder and those who wait for it.
struct Crowd {
    key: Key<'static>,
    holder: Connection,
    token: u64,
    connections: Vec<(Connection, std::ops::Range<u64>)>,
}

impl Crowd {
    fn open(address: SocketAddr, waiters: u32) -> Result<Self> {
        let owners = (1..=u64::from(waiters)).step_by(WAITERS_PER_CONNECTION as usize);
        let connections = owners.map(|first| {
            let end = (first + u64::from(WAITERS_PER_CONNECTION)).min(u64::from(waiters) + 1);
            Ok((Connection::open(address)?, first..end))
        });
        let connections = connections.collect::<Result<_>>()?;
        let (key, mut holder) = (Key::new("the-lock")?, Connection::open(address)?);
        let token = holder.take(key, 0, LEASE_SECS)?;
        Ok(Self { key, holder, token, connections })
    }

    /// Everybody queues, the owners in order; returns how many a second.
    fn queue(&mut self) -> Result<f64> {
        let started = Instant::now();
        let mut all = 0;
        for (connection, owners) in &mut self.connections {
            for owner in owners.clone() {
                connection.push(ClientFrame::Acquire {
                    wait: WAIT_SECS,
                    lease: LEASE_SECS,
                    owner,
                    key: self.key,
                });
            }
            all = owners.end - 1;
            connection.push(ClientFrame::Place { owner: all, key: self.key });
            // The last of them has its place, so all have theirs.
            connection.exchange(
                1,
                |answer| matches!(answer, ServerFrame::Place { place, .. } if u64::from(place) == all),
            )?;
        }
        Ok(all as f64 / started.elapsed().as_secs_f64())
    }

    /// Everybody holds once and releases at once; the order is checked. The holder holds again after.
    fn drain(&mut self) -> Result<()> {
        let key = self.key;
        self.holder.release(key, self.token)?;
        for (connection, owners) in &mut self.connections {
            let mut next = owners.start;
            let mut released = 0;
            while released < owners.end - owners.start {
                let (mut turn, mut wrong) = (None, false);
                connection.receive(|answer| {
                    if let ServerFrame::GrantedUntil { token, owner, .. } = answer {
                        wrong |= owner != next || turn.is_some();
                        turn = Some(token);
                        next += 1;
                    } else {
                        wrong |= !matches!(answer, ServerFrame::Released { .. });
                        released += 1;
                    }
                })?;
                ensure!(!wrong, "a turn out of order, near owner {next}");
                if let Some(token) = turn {
                    connection.push(ClientFrame::Release { token, key });
                    connection.flush()?;
                }
            }
        }
        self.token = self.holder.take(key, 0, LEASE_SECS)?;
        Ok(())
    }

    /// Everybody leaves the queue by a request.
    fn cancel(&mut self) -> Result<()> {
        for (connection, owners) in &mut self.connections {
            for owner in owners.clone() {
                connection.push(ClientFrame::Cancel { owner, key: self.key });
            }
            let waiters = usize::try_from(owners.end - owners.start)?;
            connection.exchange(waiters, |answer| matches!(answer, ServerFrame::Busy { .. }))?;
        }
        Ok(())
    }

    /// Everybody leaves by hanging up; the holder watches the queue until it is empty.
    fn leave(mut self) -> Result<()> {
        drop(self.connections);
        let mut left = u32::MAX;
        while left > 0 {
            self.holder.push(ClientFrame::Place { owner: 0, key: self.key });
            self.holder.exchange(1, |answer| {
                let ServerFrame::Place { waiters, .. } = answer else { return false };
                left = waiters;
                true
            })?;
        }
        Ok(())
    }
}
