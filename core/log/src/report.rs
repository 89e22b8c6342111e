//! Reports of recovery and fsck.

/// A place whose bytes differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub position: u64,
    /// 0 if the place belongs to no partition, for example to a group's directory.
    pub topic: u64,
    pub partition: u64,
    /// `None` if it is unknown.
    pub record_number: Option<u64>,
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {}: {}", self.file, self.position, self.why)
    }
}

/// One partition after recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionReport {
    pub topic: u64,
    pub partition: u64,
    /// Next record number.
    pub records: u64,
    pub start_offset: u64,
    pub end_offset: u64,
    pub owner_epoch: u64,
    pub fence: u64,
    pub chain: u64,
    pub quarantined: Option<Damage>,
}

/// The result of reading a whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub files: u64,
    pub bytes: u64,
    pub records: u64,
    /// Bytes of torn last groups; they were cut because none of their records was acknowledged.
    pub cut_bytes: u64,
    pub partitions: Vec<PartitionReport>,
    pub damage: Vec<Damage>,
}
