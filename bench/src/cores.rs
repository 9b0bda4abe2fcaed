//! Which process runs on which core.
//!
//! Left to itself, the system puts a server and its client on one core in one
//! run and on two in the next, and either is up to twice as fast as the other,
//! depending on the workload. So the servers get half of the cores and the
//! clients the other half, the product and the floor alike.

use std::fs;

use anyhow::{Context as _, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may use, divided.
pub(crate) struct Cores {
    all: Vec<usize>,
    servers: CpuSet,
    clients: CpuSet,
}

impl Cores {
    /// Divides them. A single core is shared.
    pub(crate) fn divide() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        let half = all.len() / 2;
        let (servers, clients) = if half > 0 { all.split_at(half) } else { (&*all, &*all) };
        let (servers, clients) = (set(servers), set(clients));
        Ok(Self { all, servers, clients })
    }

    pub(crate) fn all(&self) -> &[usize] {
        &self.all
    }

    /// The calling thread, and what it starts from now on, are clients.
    pub(crate) fn become_client(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.clients)?)
    }

    /// That process is a server.
    pub(crate) fn give_to_server(&self, process: Pid) -> Result<()> {
        Self::give(process, &self.servers)
    }

    /// That process is one of more than there are cores.
    pub(crate) fn share(&self, process: Pid) -> Result<()> {
        Self::give(process, &set(&self.all))
    }

    fn give(process: Pid, cores: &CpuSet) -> Result<()> {
        for thread in fs::read_dir(format!("/proc/{}/task", process.as_raw_pid()))? {
            let id = thread?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            sched_setaffinity(id, cores).context("choosing the cores of a server")?;
        }
        Ok(())
    }

    /// That process runs on this core alone.
    pub(crate) fn tie(process: Pid, core: usize) -> Result<()> {
        Ok(sched_setaffinity(Some(process), &set(&[core]))?)
    }
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    set
}
