//! Clusters of real server processes under faults.
