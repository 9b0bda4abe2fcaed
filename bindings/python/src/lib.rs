//! The Ticketing client for Python, up to where Python takes over.
//!
//! Everything that a client does is done by the crate `ticketing`, on a thread
//! of its own. Here its requests become `Call`s, their outcomes
//! come back through an `Inbox` for each event loop, or to a
//! thread that waits without the interpreter's lock, and errors become data
//! (`Failure`). Exceptions, event loops, `with` and
//! decorators are Python's own business, in `python/ticketing`.
//!
//! Nothing here calls code of Python, so a thread that the interpreter ends has
//! no frame of Rust on its stack.

#![cfg(unix)]
#![allow(unsafe_code, reason = "the macros of PyO3 expand to it; none is written here")]

mod broker;
mod call;
mod failure;
mod inbox;
mod log;
mod process;
mod seconds;
mod ticket;

use pyo3::prelude::*;

#[pymodule(name = "_ticketing")]
mod module {
    use super::*;

    #[pymodule_export]
    use super::broker::Broker;
    #[pymodule_export]
    use super::call::Call;
    #[pymodule_export]
    use super::failure::Failure;
    #[pymodule_export]
    use super::inbox::Inbox;
    #[pymodule_export]
    use super::log::{close_log, open_log};
    #[pymodule_export]
    use super::process::{forked, settle};
    #[pymodule_export]
    use super::ticket::Held;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let defaults = ticketing::AcquireOptions::default();
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        module.add("DEFAULT_WAIT", defaults.wait.as_secs())?;
        module.add("DEFAULT_LEASE", defaults.lease.as_secs())?;
        module.add("KINDS", failure::kinds())
    }
}
