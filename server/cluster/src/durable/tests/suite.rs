//! What openraft itself asks of a storage.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::{clock, open};
use crate::durable::{DataDir, Opened};
use crate::log::Log;
use crate::machine::Machine;
use crate::types::Types;

struct InMemory;

impl StoreBuilder<Types, Log, Machine> for InMemory {
    async fn build(&self) -> Result<((), Log, Machine), StorageError<Types>> {
        Ok(((), Log::default(), Machine::new([1, 2], clock)))
    }
}

struct OnDisk;

impl StoreBuilder<Types, Log, Machine, (DataDir, TempDir)> for OnDisk {
    async fn build(&self) -> Result<((DataDir, TempDir), Log, Machine), StorageError<Types>> {
        let folder = tempfile::tempdir().unwrap();
        let (dir, Opened { log, machine, .. }) = open(folder.path());
        Ok(((dir, folder), log, machine))
    }
}

#[tokio::test]
async fn a_node_that_forgets() {
    Suite::test_all(InMemory).await.unwrap();
}

#[tokio::test]
async fn a_node_that_remembers() {
    Suite::test_all(OnDisk).await.unwrap();
}
