//! What a running process uses, as the system sees it.

use std::fs;

use rustix::process::Pid;

/// What a process uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub rss: u64,
    /// Open file descriptors.
    pub descriptors: usize,
    /// Processor time so far, in clock ticks (a hundred a second).
    pub cpu_ticks: u64,
}

impl Usage {
    /// What the process uses now.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        let folder = format!("/proc/{}", pid.as_raw_pid());
        let read = |file: &str| {
            fs::read_to_string(format!("{folder}/{file}"))
                .unwrap_or_else(|error| panic!("{folder}/{file}: {error}"))
        };
        let status = read("status");
        let rss_kib: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|value| value.trim().strip_suffix(" kB"))
            .map_or(0, |value| value.parse().expect("a number of KiB"));
        let stat = read("stat");
        // The name in parentheses may hold anything; utime and stime are the 12th and 13th field after it.
        let (_, after_name) = stat.rsplit_once(") ").expect("a process name");
        let ticks = after_name
            .split(' ')
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().expect("a number of ticks"));
        let descriptors = fs::read_dir(format!("{folder}/fd")).expect("its descriptors").count();
        Self { rss: rss_kib * 1024, descriptors, cpu_ticks: ticks.sum() }
    }
}
