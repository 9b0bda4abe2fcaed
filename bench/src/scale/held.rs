//! A million held keys: what each costs, and whether the table slows down.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use ticketing_protocol::{ClientFrame, Key, ServerFrame};

use super::bytes_each;
use crate::figures::median;
use crate::raw::Connection;
use crate::report::{Finding, Target};
use crate::stage::Stage;

const FEW: u32 = 64;
/// Keys of one write. With two connections in turn the server always has work
/// while the client reads, and each of the few keys is in flight once.
const BURST: u32 = FEW / 2;
const LEASE_SECS: u8 = 250;

pub(crate) fn measure(stage: &Stage) -> Result<Vec<Finding>> {
    stage.step("held keys: taking them");
    let (crowded, quiet) = (stage.server()?, stage.server()?);
    let mut many = Table::open(crowded.addr(), stage.plan.held_keys)?;
    let before = crowded.usage().rss;
    many.take_all()?;
    let bytes = bytes_each(before, crowded.usage().rss, stage.plan.held_keys);

    let mut few = Table::open(quiet.addr(), FEW)?;
    few.take_all()?;
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..stage.plan.rounds {
        stage.step("held keys: cycling many and few in turn");
        let (many, few) = (many.cycle(stage.plan.held_cycles)?, few.cycle(stage.plan.held_cycles)?);
        rates.push(many);
        shares.push(100.0 * many / few);
    }
    Ok(vec![
        Finding::new("memory of a held lock", bytes, "B", Target::AtMost(250.0)),
        Finding::new("cycles with all of them held", median(rates), "/s", Target::None),
        Finding::new("the same, as a share of 64 held keys", median(shares), "%", Target::AtLeast(80.0)),
    ])
}

/// Held keys and their tokens.
struct Table {
    connections: [Connection; 2],
    tokens: Vec<u64>,
    next: u32,
}

impl Table {
    fn open(address: SocketAddr, keys: u32) -> Result<Self> {
        let connections = [Connection::open(address)?, Connection::open(address)?];
        Ok(Self { connections, tokens: vec![0; usize::try_from(keys)?], next: 0 })
    }

    /// Takes every key once.
    fn take_all(&mut self) -> Result<()> {
        self.run(u32::try_from(self.tokens.len())? / BURST, false)
    }

    /// Releases and takes again one key after the other; returns cycles a second.
    fn cycle(&mut self, cycles: u32) -> Result<f64> {
        let started = Instant::now();
        self.run(cycles / BURST, true)?;
        Ok(f64::from(cycles / BURST * BURST) / started.elapsed().as_secs_f64())
    }

    fn run(&mut self, bursts: u32, release: bool) -> Result<()> {
        let answers = usize::try_from(if release { 2 * BURST } else { BURST })?;
        for burst in 0..bursts {
            self.connections.swap(0, 1);
            if burst >= 2 {
                self.settle(answers)?;
            }
            self.send_burst(release)?;
        }
        for _ in 0..bursts.min(2) {
            self.connections.swap(0, 1);
            self.settle(answers)?;
        }
        Ok(())
    }

    /// Reads the answers to the burst that the first connection has out.
    fn settle(&mut self, answers: usize) -> Result<()> {
        let tokens = &mut self.tokens;
        self.connections[0].expect(answers, |answer| {
            let ServerFrame::GrantedUntil { token, owner, .. } = answer else {
                return matches!(answer, ServerFrame::Released { .. });
            };
            let slot = usize::try_from(owner).ok().and_then(|key| tokens.get_mut(key));
            slot.map(|slot| *slot = token).is_some()
        })
    }

    fn send_burst(&mut self, release: bool) -> Result<()> {
        for _ in 0..BURST {
            let index = self.next as usize;
            let name = name(self.next);
            let key = Key::from_bytes(&name)?;
            if release {
                self.connections[0].push(ClientFrame::Release { token: self.tokens[index], key });
            }
            let owner = u64::from(self.next);
            self.connections[0].push(ClientFrame::Acquire { wait: 0, lease: LEASE_SECS, owner, key });
            self.next = if index + 1 == self.tokens.len() { 0 } else { self.next + 1 };
        }
        self.connections[0].flush()
    }
}

/// Eight hexadecimal digits.
fn name(index: u32) -> [u8; 8] {
    let mut name = [0; 8];
    for (place, digit) in name.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(index >> (4 * place) & 0xf) as usize];
    }
    name
}
