//! The checker on trial: silent about whatever a correct service can do, and heard
//! whenever a promise is broken.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bugs;
mod mutations;
mod scale;
mod service;
mod soundness;
mod story;
mod world;
