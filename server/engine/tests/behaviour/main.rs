//! What the engine does, held against a model that is too simple to be wrong,
//! against the promises of any lock service, and against tables and stories
//! written by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

mod agreement;
mod cluster;
mod ledger;
mod lockstep;
mod machine;
mod matrix;
mod model;
mod office;
mod plain;
mod scene;
mod schedule;
mod stories;
