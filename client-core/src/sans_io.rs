//! One connection as a plain value, for simulations that bring their own network
//! and their own time.
//!
//! No part of the stable interface: any release may change it.

pub use crate::session::{Fate, Kind, Reply, Request, Session, Why, Word};
pub use crate::trouble::{At, Trouble};
