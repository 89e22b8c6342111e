//! Which files may go, and which partitions owe a state record first.

use crate::partition::PartitionLog;
use crate::shard::Shard;

/// How long rows are kept; 0 = no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub bytes_max: u64,
    pub age_ms_max: u64,
}

/// Give up pins that are no longer needed, hand free files to their shards, and name the partitions whose state must be
/// carried forward (`Shard::append_state`) before more can go. Call after a rotation, a moved log start, and every few seconds.
pub fn retain<'a>(
    shards: &mut [Shard],
    partitions: impl Iterator<Item = &'a mut PartitionLog>,
) -> Vec<(u64, u64)> {
    let _ = (shards, partitions.count());
    todo!()
}
