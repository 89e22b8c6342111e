//! Settings of the engine: values only.

/// The cluster's level from which on partitions are split and merged; see `docs/design/levels.md`.
pub const LAYOUT_LEVEL: u16 = 2;

/// The cluster's level from which on logs have records of cohorts.
pub const COHORT_LEVEL: u16 = 3;

/// What the engine is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub node: u64,
    /// The cluster's level: records and messages have the form that every program of it reads.
    pub level: u16,
    /// The newest level that an order may raise `level` to.
    pub level_newest: u16,
    pub cluster: [u8; 16],
    pub history: [u8; 16],
    pub store: [u8; 16],
    /// Bytes of the pool: credit, parking and reads are parts of it.
    pub pool_bytes: usize,
    pub producers: TableLimits,
    /// Memory of all producer tables together.
    pub producers_bytes: usize,
    /// Stored records are read back this fast in the background; 0 = never.
    pub scrub_bytes_per_s: u64,
    /// Requests that wait for a newer table; the same again, but for blocks, for those that wait for room in a shard.
    pub parked: Bounds,
}

/// How much may wait in one lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub requests: usize,
    /// Of bodies copied to the heap.
    pub copied_bytes: usize,
    /// Of bodies in blocks of the pool.
    pub block_bytes: usize,
}

/// Bounds of one partition's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    pub entries: usize,
    /// Of memory and of the state blob.
    pub bytes: usize,
    /// An entry without a record for this long before the partition's newest record is forgotten.
    pub expiry_ms: u64,
}
