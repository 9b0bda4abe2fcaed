//! A server alone that remembers: a cluster of one, with the same log on disk. It
//! talks to nobody, and leads as soon as it has read what is there.

use std::path::PathBuf;

use ticketing_engine::Nanos;
use ticketing_peer::{Limits, Secret};

use crate::calls::{Form, Founder};
use crate::durable::{DataDir, DataDirError, Identity, Opened};
use crate::init::wall_clock_token;
use crate::node::{Cluster, Config, Inner, Running, StartError, on_disk, random};
use crate::slots::Slots;
use crate::timing::Timing;
use crate::types::Member;

/// What a server alone needs to know.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Where it keeps its log.
    pub data_dir: PathBuf,
    /// Where clients reach it, for the status.
    pub client: String,
    /// A monotonic clock that goes on during suspend.
    pub clock: fn() -> Nanos,
    /// Random: it keeps clients from choosing keys that collide in a table.
    pub hash_seed: [u64; 2],
}

impl Cluster {
    /// Starts a server alone, with all that it held when it ended. A new data
    /// directory gets an identity, the fencing domain, once; its tokens begin at the
    /// wall clock.
    ///
    /// # Errors
    /// [`StartError`]: what is on disk cannot be used, and was not changed.
    pub async fn alone(alone: Alone) -> Result<Self, StartError> {
        let Alone { data_dir, client, clock, hash_seed } = alone;
        let config = Config {
            slots: Slots::alone(client),
            slot: 0,
            peer: nobody()?,
            timing: Timing::default(),
            clock,
            hash_seed,
            data_dir: Some(data_dir),
            state_dir: None,
            log_memory: crate::LOG_MEMORY,
        };
        let (config, disk) = on_disk(config, find_or_begin).await?;
        let (cluster, life) = Self::with(config, disk)?;
        tokio::spawn(life);
        Ok(cluster)
    }
}

/// It has no peers, and whoever calls itself one does not know this secret.
fn nobody() -> Result<ticketing_peer::Config, StartError> {
    let secret = random().map_err(StartError::Random)?.to_le_bytes();
    let secret = Secret::new(&secret).map_err(|error| StartError::Failed(error.to_string()))?;
    Ok(ticketing_peer::Config { secret, tls: None, limits: Limits::default() })
}

fn find_or_begin(data_dir: &DataDir, config: &Config) -> Result<Option<Opened>, DataDirError> {
    if let Some(found) = data_dir.find(config)? {
        return Ok(Some(found));
    }
    let member = Member { slot: 0, peer: String::new(), client: String::new() };
    let incarnation = random().map_err(DataDirError::Random)?;
    let form = Form {
        cluster: random().map_err(DataDirError::Random)?.max(1),
        first_token: wall_clock_token(),
        founders: vec![Founder { incarnation, member: member.clone() }],
        instead_of: 0,
        new_identity: false,
    };
    let identity = Identity {
        cluster: form.cluster,
        node: 1,
        incarnation,
        member,
        slots: config.slots.names(),
        form: Some(form),
    };
    data_dir.begin(&identity, config).map(Some)
}

impl Inner {
    /// Makes a server alone the leader of its cluster, with no time lost.
    pub(crate) async fn lead_alone(&self, running: &Running) -> Result<(), String> {
        if running.raft.is_initialized().await.map_err(|error| error.to_string())? {
            // Nobody else could lead.
            running.raft.trigger().elect(false).await.map_err(|error| error.to_string())
        } else {
            self.begin().await
        }
    }
}
