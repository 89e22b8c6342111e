//! Jobs of a shard's writer thread, and their results.

use std::ops::Range;

use ringfence_buffer::Block;

use crate::group::GroupWrite;
use crate::storage::StorageError;

/// One change of files besides the group; the writer does them in order after the group is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileStep {
    /// Create a file of this name with this much space, so that a later rotation cannot fail for lack of space.
    Allocate { name: String, bytes: u64 },
    /// Rename a segment without holders for use as another file.
    Recycle { segment: String, name: String, bytes: u64 },
    /// Remove a segment without holders.
    Remove { segment: String },
}

/// Work for the writer of one shard; at most one of a shard is under way.
pub struct Job {
    pub shard: u16,
    /// Number of the commit group that this job makes durable; `None` for file steps alone.
    pub group: Option<u64>,
    pub(crate) write: Option<GroupWrite>,
    pub(crate) steps: Vec<FileStep>,
}

/// The result of a job. Its buffers return to the pool when it is dropped.
pub struct JobDone {
    pub shard: u16,
    pub group: Option<u64>,
    pub(crate) job: Job,
    /// Outcome of the write and its sync.
    pub(crate) outcome: Result<(), StorageError>,
    /// Outcomes of the file steps that were tried; none after a failed write.
    pub(crate) steps: Vec<Result<(), StorageError>>,
}

impl Job {
    /// Bytes that this job writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.write.as_ref().map_or(0, |write| write.bytes)
    }
}

impl JobDone {
    /// Bytes that the job had to write.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.job.bytes()
    }

    /// True if the job removed a segment. A reader that has it open must close it before the space is free.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        let outcomes = self.job.steps.iter().zip(&self.steps);
        outcomes.into_iter().any(|(step, outcome)| matches!((step, outcome), (FileStep::Remove { .. }, Ok(()))))
    }
}

/// The bytes of one durable group.
pub struct DurableGroup {
    pub blocks: Vec<Block>,
    /// (index in `blocks`, bytes in that block), in file order. A slice is a run of whole records, each `span_bytes`
    /// long; a large record has a slice and a block of its own.
    pub slices: Vec<(u32, Range<usize>)>,
}

impl std::fmt::Debug for DurableGroup {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "DurableGroup {{ slices: {:?} }}", self.slices)
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "Job {{ shard: {}, group: {:?}, bytes: {}, steps: {:?} }}",
            self.shard,
            self.group,
            self.bytes(),
            self.steps
        )
    }
}
