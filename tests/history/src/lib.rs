//! Histories of lock operations, and what must hold for them.
