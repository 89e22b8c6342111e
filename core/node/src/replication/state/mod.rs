//! State of replication, apart from the transitions in the folder above. Pure: nothing here sends or appends.

pub(crate) mod backoff;
pub(crate) mod confirms;
pub(crate) mod follower;
pub(crate) mod node_wide;
pub(crate) mod owner;
pub(crate) mod peers;
pub(crate) mod progress;
pub(crate) mod records;
pub(crate) mod role;
pub(crate) mod tail;
pub(crate) mod throttle;
