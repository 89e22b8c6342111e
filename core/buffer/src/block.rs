//! One block: memory with one owner, which goes back to its pool when dropped, on whatever thread.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::BLOCK_ALIGN_BYTES;
use crate::mapping::Mapping;

/// Pages next to each other, by index and count in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: u32,
    pub pages: u32,
}

/// What a pool and its blocks share.
pub struct Arena {
    pub mapping: Mapping,
    /// Runs of dropped blocks on their way to the owner. It holds one entry for each page of the
    /// mapping, and a block has at least a page: it cannot overflow.
    pub returned: ArrayQueue<Run>,
    /// Bytes in no block, those in `returned` included.
    pub free_bytes: AtomicUsize,
}

/// Bytes of the pool, 4096-aligned, of a capacity rounded up to a multiple of 4096: `block.len()`.
/// What an earlier owner wrote is still there.
pub struct Block {
    arena: Arc<Arena>,
    run: Run,
}

impl Block {
    /// The caller hands over `run`, which no other block has.
    pub(crate) fn new(arena: Arc<Arena>, run: Run) -> Self {
        arena.free_bytes.fetch_sub(bytes_in(run), Ordering::Relaxed);
        Self { arena, run }
    }
}

pub fn bytes_in(run: Run) -> usize {
    run.pages as usize * BLOCK_ALIGN_BYTES
}

#[allow(unsafe_code)]
impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pool cut the run out of the mapping and gave it to this block alone; it takes the
        // run back only in `drop`. `&self` excludes writers.
        unsafe { self.arena.mapping.bytes_of(self.run.first as usize * BLOCK_ALIGN_BYTES, bytes_in(self.run)) }
    }
}

#[allow(unsafe_code)]
impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` excludes every other reader and writer.
        unsafe { self.arena.mapping.bytes_of_mut(self.run.first as usize * BLOCK_ALIGN_BYTES, bytes_in(self.run)) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.free_bytes.fetch_add(bytes_in(self.run), Ordering::Relaxed);
        // The queue's release and acquire order this owner's accesses before the next owner's.
        let returned = self.arena.returned.push(self.run);
        debug_assert!(returned.is_ok(), "more blocks than pages");
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Block").field("run", &self.run).finish_non_exhaustive()
    }
}
