//! The Ticketing client for C.
//!
//! This crate maps names, errors and handles, and holds no protocol, retry or
//! timer of its own: all that is in the crate `ticketing`. `include/ticketing.h`
//! is made of the documentation here and is what users read.
//!
//! * A handle is a number that is looked up (`registry`), so one that is freed,
//!   stale or made up is an error code, never a pointer into the void.
//! * Each exported function runs inside `guard::guarded`: a panic ends there.
//! * Raw memory is read and written in `raw` and `sized` alone.

#![allow(unreachable_pub, reason = "exported to C")]
#![allow(clippy::missing_safety_doc, reason = "the head of ticketing.h says once what every pointer must be")]

mod acquire;
mod broker;
mod call;
mod failure;
mod guard;
mod last;
mod options;
mod raw;
mod registry;
mod release;
mod sized;
mod status;
mod ticket;
mod verify;
