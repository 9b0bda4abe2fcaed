//! How often a leader is heard, and how soon it is missed.

use std::sync::Arc;
use std::time::Duration;

use openraft::SnapshotPolicy;

/// The clocks of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of the leader.
    pub heartbeat: Duration,
    /// A follower that has not heard of a leader waits for the longest time, and then
    /// for a time between these two, before it stands for election.
    pub election: (Duration, Duration),
}

impl Default for Timing {
    /// On two shared cores a dead leader is replaced within a second, and a busy
    /// one is not unseated.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(300), Duration::from_millis(450)),
        }
    }
}

impl Timing {
    /// What openraft is told.
    pub(crate) fn config(self) -> Result<Arc<openraft::Config>, openraft::ConfigError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let longest = millis(self.election.1);
        let config = openraft::Config {
            cluster_name: "ticketing".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election.0),
            election_timeout_max: longest,
            // A node that was cut off and comes back does not unseat a healthy leader.
            enable_pre_vote: Some(true),
            // A leader that only a bridge can hear gives way.
            quorum_loss_probe_interval: Some(longest.saturating_mul(2)),
            // Nodes forget when they end: what they once had is no reason to trust them.
            allow_log_reversion: Some(false),
            enable_leader_restore: Some(false),
            broadcast_submitted_on_append: Some(false),
            max_payload_entries: 1024,
            install_snapshot_timeout: 30_000,
            // By size, which openraft does not know: the housekeeper sees to it.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            purge_batch_size: 1,
            backoff: "100ms".to_owned(),
            ..openraft::Config::default()
        };
        config.validate().map(Arc::new)
    }
}
