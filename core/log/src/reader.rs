//! Executes read plans on a reader thread.

use ringfence_buffer::Block;

use crate::plan::ReadPlan;
use crate::report::Damage;
use crate::storage::{Storage, StorageError};

/// What one read found: whole records behind one another in the block, each at a multiple of 64; the next one begins at
/// `align_up(192 + body_bytes, 64)`, which `span_bytes` says too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadDone {
    pub bytes: usize,
    pub rows: u64,
    pub records: u32,
    /// Offset of the first row in the first record; `next_offset` when there is none.
    pub first_offset: u64,
    /// Where the next read goes on.
    pub next_offset: u64,
    pub next_record: u64,
    /// Owner epoch of the last record.
    pub owner_epoch: u64,
    /// Time of the first record.
    pub first_time_ms: u64,
}

/// Why a read failed; nothing in the block counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    Storage(StorageError),
    /// The bytes are not what was written.
    Damaged(Damage),
    /// The first record alone is larger than the block: ask again with one of this size.
    BlockTooSmall { bytes: usize },
}

/// One reader thread's state: open files (bounded) and scratch.
pub struct Reader<S: Storage> {
    storage: S,
}

impl<S: Storage> Reader<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self { storage }
    }

    /// Read verbatim records into `block`, up to the plan's limits and the block's length.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, plan: &ReadPlan, block: &mut Block) -> Result<ReadDone, ReadError> {
        let _ = (&self.storage, plan, block);
        todo!()
    }
}
