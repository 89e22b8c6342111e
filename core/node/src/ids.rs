//! Indexes, keys and log positions that all rooms use.

/// Index in [`Partitions`]; stays with the partition until it was dropped.
pub type PartitionIndex = u32;

/// (topic, partition).
pub(crate) type PartitionKey = (u64, u64);

/// An end of the log: after the last record, and after its last row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub record: u64,
    pub offset: u64,
}

/// Of one partition: epoch of the row before, and offset. (0, 0) = nothing is known.
pub type Reach = (u64, u64);
