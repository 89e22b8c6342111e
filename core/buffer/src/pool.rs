//! The pool itself: what its one owner does. Blocks come back through the queue in [`Arena`].

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::BLOCK_ALIGN_BYTES;
use crate::block::{Arena, Block};
use crate::mapping::Mapping;
use crate::runs::Runs;

/// How much of the pool is made resident before it is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// All of it: about 0.3 s a GiB, 3 s where the machine itself is cold.
    #[default]
    Everything,
    /// The front, which is also what is given out first.
    Bytes(usize),
    /// Nothing, and no huge pages: for many small pools that live for milliseconds, where a first touch of 4 KiB
    /// costs less than zeroing 2 MiB.
    Nothing,
}

/// Why a pool could not be made.
#[derive(Debug)]
pub enum PoolError {
    /// The budget is below one block or above what 32-bit page numbers reach (16 TiB).
    Budget { bytes: usize },
    /// The kernel refused the mapping.
    Mapping { bytes: usize, source: io::Error },
}

/// A fixed amount of memory, cut into blocks on demand.
pub struct Pool {
    arena: Arc<Arena>,
    runs: Runs,
    budget_bytes: usize,
}

impl Pool {
    /// A pool of `budget_bytes`, rounded up to whole blocks, all of it resident.
    ///
    /// # Errors
    /// [`PoolError`]: a senseless budget, or the kernel has no such memory.
    pub fn new(budget_bytes: usize) -> Result<Self, PoolError> {
        Self::with_touch(budget_bytes, Touch::Everything)
    }

    /// The same, with a say in what is made resident now and what at its first use.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_touch(budget_bytes: usize, touch: Touch) -> Result<Self, PoolError> {
        let pages = budget_bytes.div_ceil(BLOCK_ALIGN_BYTES);
        let page_count = match u32::try_from(pages) {
            Ok(count) if count > 0 && count < u32::MAX => count,
            _ => return Err(PoolError::Budget { bytes: budget_bytes }),
        };
        let budget_bytes = pages * BLOCK_ALIGN_BYTES;
        let mapping = Mapping::new(budget_bytes, touch != Touch::Nothing)
            .map_err(|source| PoolError::Mapping { bytes: budget_bytes, source })?;
        mapping.touch(match touch {
            Touch::Everything => budget_bytes,
            Touch::Bytes(bytes) => bytes,
            Touch::Nothing => 0,
        });
        let arena = Arena { mapping, returned: ArrayQueue::new(pages), free_bytes: AtomicUsize::new(budget_bytes) };
        Ok(Self { arena: Arc::new(arena), runs: Runs::new(page_count), budget_bytes })
    }

    /// A block of at least `bytes` bytes, or `None` when no free run is long enough: try again when
    /// blocks were dropped. The capacity is `bytes` rounded up to a multiple of 4096, at least 4096.
    pub fn take(&mut self, bytes: usize) -> Option<Block> {
        let pages = u32::try_from(bytes.div_ceil(BLOCK_ALIGN_BYTES).max(1)).ok()?;
        // At most as many turns as blocks were dropped since the last call.
        while let Some(run) = self.arena.returned.pop() {
            self.runs.give(run);
        }
        let run = self.runs.take(pages)?;
        Some(Block::new(Arc::clone(&self.arena), run))
    }

    /// Bytes in no block. They may lie apart: `take` of as many can still find no run.
    pub fn free_bytes(&self) -> usize {
        self.arena.free_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all blocks together, taken or free.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pool({} of {} bytes free)", self.free_bytes(), self.budget_bytes)
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { bytes } => {
                write!(formatter, "a pool of {bytes} bytes cannot be: set the memory budget between 4 KiB and 16 TiB")
            }
            Self::Mapping { bytes, source } => {
                write!(formatter, "mapping a pool of {bytes} bytes failed: {source}; lower the memory budget")
            }
        }
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Budget { .. } => None,
            Self::Mapping { source, .. } => Some(source),
        }
    }
}
