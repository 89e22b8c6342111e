//! What the engine asks of a shard's writer thread, and what comes back.

use std::ops::Range;

use ringfence_buffer::Block;

use crate::group::Begin;
use crate::storage::StorageError;

/// One step on files besides the group itself; done after the group is durable, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Give a file of this name this much space, so that a rotation later cannot run out of it.
    Allocate { name: String, bytes: u64 },
    /// Make a segment that nobody needs into a file of another name.
    Recycle { segment: String, name: String, bytes: u64 },
    /// Remove a segment that nobody needs.
    Remove { segment: String },
}

/// The group's bytes: one vectored write at `position`.
pub(crate) struct Write {
    /// Name of the segment.
    pub segment: String,
    /// Set for the first group of a file.
    pub begin: Option<Begin>,
    pub position: u64,
    pub bytes: u64,
    pub records: u32,
    /// Length that the file was made with.
    pub capacity: u64,
    pub blocks: Vec<Block>,
    /// (index in `blocks`, bytes of it), in file order; each begins and ends at a multiple of 4096.
    pub slices: Vec<(u32, Range<usize>)>,
}

/// Work for the writer of one shard; at most one of a shard is under way.
pub struct Job {
    pub shard: u16,
    /// Number of the commit group that this job makes durable, 0 = none (only steps).
    pub group: u64,
    pub(crate) write: Option<Write>,
    pub(crate) steps: Vec<Step>,
}

/// How one job ended. Gives the buffers back: they return to the pool when it is dropped.
pub struct JobDone {
    pub shard: u16,
    pub group: u64,
    pub(crate) job: Job,
    /// Of the write and its sync.
    pub(crate) outcome: Result<(), StorageError>,
    /// Of each step that was tried; none is after a failed write.
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
    /// Bytes that the job was to write.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.job.bytes()
    }

    /// True when this job removed a segment: a reader that has it open must close it before its space is free.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        let outcomes = self.job.steps.iter().zip(&self.steps);
        outcomes.into_iter().any(|(step, outcome)| matches!((step, outcome), (Step::Remove { .. }, Ok(()))))
    }

    /// The group that is durable now, taken out: its bytes may go to replicas before their blocks are used again. What
    /// is a staging block belongs back to the shard ([`crate::Shard::keep_staging`]). `None` if nothing was written, or
    /// not with success.
    pub fn take_written(&mut self) -> Option<Written> {
        if self.group == 0 || self.outcome.is_err() {
            return None;
        }
        let write = self.job.write.as_mut()?;
        Some(Written { blocks: std::mem::take(&mut write.blocks), slices: std::mem::take(&mut write.slices) })
    }
}

/// The bytes of one durable group.
pub struct Written {
    pub blocks: Vec<Block>,
    /// (index in `blocks`, bytes of it), in file order. A slice is a run of whole records, one behind another by
    /// `span_bytes`; a large record has a slice and a block of its own.
    pub slices: Vec<(u32, Range<usize>)>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "Job {{ shard: {}, group: {}, bytes: {}, steps: {:?} }}",
            self.shard,
            self.group,
            self.bytes(),
            self.steps
        )
    }
}
