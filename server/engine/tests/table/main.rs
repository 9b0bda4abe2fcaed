//! The applied state, its records and its snapshots.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod records;
mod rules;
mod snapshots;
mod takeover;
