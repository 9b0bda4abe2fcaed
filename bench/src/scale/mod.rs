//! What the server costs where there is a lot of everything: keys, waiters,
//! connections, noise. Each measurement has servers of its own.

pub(crate) mod flood;
pub(crate) mod held;
pub(crate) mod idle;
pub(crate) mod waiters;

/// Resident memory that each of `count` things has taken.
fn bytes_each(before: u64, after: u64, count: u32) -> f64 {
    after.saturating_sub(before) as f64 / f64::from(count)
}
