//! One partition's log as the engine knows it: head, index, log start, fence, and its pins on files.

use crate::head::PartitionHead;
use crate::index::Index;
use crate::plan::{From, PlanError, ReadPlan};
use crate::report::Damage;
use crate::retain::Retention;

/// Everything about one partition that is not on disk. At most 4 KiB while it is idle.
pub struct PartitionLog {
    pub topic: u64,
    pub partition: u64,
    head: PartitionHead,
    index: Index,
}

impl PartitionLog {
    /// A partition without records.
    #[must_use]
    pub fn new(topic: u64, partition: u64) -> Self {
        Self { topic, partition, head: PartitionHead::default(), index: Index::default() }
    }

    pub fn head(&self) -> &PartitionHead {
        &self.head
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> u64 {
        todo!()
    }

    /// Behind the last appended row, durable or not.
    pub fn end_offset(&self) -> u64 {
        self.head.next_offset
    }

    /// No append below this epoch.
    pub fn fence(&self) -> u64 {
        todo!()
    }

    /// Bytes that its records between log start and end take on disk, by the index (exact to one index interval).
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// Set while the partition must not be served.
    pub fn quarantine(&self) -> Option<&Damage> {
        todo!()
    }

    /// Where to read from `from` on, rows records only, below the mark `until_offset`.
    ///
    /// # Errors
    /// [`PlanError`] when the position is not in this log.
    pub fn plan(
        &self,
        from: From,
        until_offset: u64,
        bytes_max: usize,
        rows_max: u64,
    ) -> Result<ReadPlan, PlanError> {
        let _ = (from, until_offset, bytes_max, rows_max);
        todo!()
    }

    /// The log start that retention asks for, if it is above the present one. Exact to one index interval; never
    /// above `until_offset` (the mark).
    pub fn retention_start(&self, retention: Retention, now_ms: u64, until_offset: u64) -> Option<u64> {
        let _ = (retention, now_ms, until_offset);
        todo!()
    }
}
