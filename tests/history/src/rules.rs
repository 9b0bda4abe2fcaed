//! One file a kind of promise.

pub(crate) mod answers;
pub(crate) mod form;
pub(crate) mod gaps;
pub(crate) mod holds;
pub(crate) mod queue;
pub(crate) mod releases;
pub(crate) mod stuck;
pub(crate) mod tokens;
pub(crate) mod verdicts;
