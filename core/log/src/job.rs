//! What the engine asks of a shard's writer thread, and what comes back.

use std::ops::Range;

use ringfence_buffer::Block;

use crate::file_header::FileHeader;
use crate::storage::StorageError;

/// One step on files besides the group itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a spare of this length: preallocated under its own name, so that a rotation later cannot run out of space.
    MakeSpare { name: String, bytes: u64 },
    /// Rename a file that nobody needs into a spare.
    Recycle { file: u64, name: String, bytes: u64 },
    /// Delete a file that nobody needs.
    Delete { name: String },
    /// Try to make a spare again after the disk was full.
    Close { file: u64 },
}

/// The group's bytes: one vectored write at `position`.
pub(crate) struct Write {
    pub file: u64,
    pub position: u64,
    /// Set for the first group of a file: the spare that becomes it, and its header.
    pub begin: Option<(String, FileHeader)>,
    pub blocks: Vec<Block>,
    /// (index in `blocks`, bytes of it), in file order; each begins and ends at a multiple of 4096.
    pub slices: Vec<(u32, Range<usize>)>,
    pub bytes: u64,
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
    /// Of the write and its sync. An error other than `Full` fails the shard for good.
    pub(crate) outcome: Result<(), StorageError>,
    /// Of each step.
    pub(crate) steps: Vec<Result<(), StorageError>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.write.as_ref().map_or(0, |write| write.bytes);
        write!(out, "Job {{ shard: {}, group: {}, bytes: {bytes}, steps: {:?} }}", self.shard, self.group, self.steps)
    }
}

impl Job {
    /// Bytes that this job writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.write.as_ref().map_or(0, |write| write.bytes)
    }
}
