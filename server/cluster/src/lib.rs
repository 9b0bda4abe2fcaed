//! Replication of the lock state over Raft.
