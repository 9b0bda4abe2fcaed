//! Authenticated, pipelined calls between the nodes of a cluster.
