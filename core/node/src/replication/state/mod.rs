//! State of replication, apart from the transitions in the folder above. Pure: nothing here sends or appends.

pub(crate) mod backoff;
pub(crate) mod barrier_waits;
pub(crate) mod follower;
pub(crate) mod memory_tail;
pub(crate) mod node_wide;
pub(crate) mod owner;
pub(crate) mod peer_connections;
pub(crate) mod replica_progress;
pub(crate) mod replicate_bodies;
pub(crate) mod role;
pub(crate) mod throttle;
