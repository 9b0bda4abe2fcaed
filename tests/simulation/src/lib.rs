//! The lock engine, the replicated table and the client session under simulated time and faults.
