//! The pool and its blocks. One thread owns a [`Pool`]; blocks travel and may be dropped anywhere.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::buddy::Buddy;
use crate::mapping::Mapping;

/// Unit of the pool, and alignment of every block: a page, and all that `O_DIRECT` asks for.
pub const UNIT_BYTES: usize = 4096;

/// The pool cannot be made.
#[derive(Debug)]
pub enum PoolError {
    /// Less than one unit, or more than the address space holds.
    Budget(usize),
    /// The kernel gave no memory.
    Map(std::io::Error),
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Budget(bytes) => {
                write!(out, "a buffer pool of {bytes} bytes cannot be made; the least is {UNIT_BYTES}")
            }
            Self::Map(error) => write!(out, "the kernel gave no memory for the buffer pool: {error}; lower the budget"),
        }
    }
}

impl std::error::Error for PoolError {}

/// What blocks share with their pool: the memory, and the queue on which they return.
struct Home {
    mapping: Mapping,
    /// (first unit, units) of dropped blocks. One slot a unit: it cannot overflow, since a block has at least one.
    returned: ArrayQueue<(u32, u32)>,
}

/// A fixed amount of memory, handed out in blocks.
pub struct Pool {
    buddy: Buddy,
    home: Arc<Home>,
}

impl Pool {
    /// Map `budget_bytes` (rounded down to whole units) on huge pages and touch all of it once.
    ///
    /// # Errors
    /// [`PoolError`] when the budget makes no pool or the kernel refuses it.
    pub fn new(budget_bytes: usize) -> Result<Self, PoolError> {
        Self::with_touch(budget_bytes, true)
    }

    /// Like [`Pool::new`]; without `touch` pages appear on first use, which is slower then but starts at once.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_touch(budget_bytes: usize, touch: bool) -> Result<Self, PoolError> {
        let units = budget_bytes / UNIT_BYTES;
        if units == 0 || units >= u32::MAX as usize {
            return Err(PoolError::Budget(budget_bytes));
        }
        let mapping = Mapping::new(units * UNIT_BYTES, touch).map_err(PoolError::Map)?;
        let home = Arc::new(Home { mapping, returned: ArrayQueue::new(units) });
        Ok(Self { buddy: Buddy::new(units), home })
    }

    /// A block of at least `bytes`, or none while too little is free in one piece.
    pub fn take(&mut self, bytes: usize) -> Option<Block> {
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        if units * UNIT_BYTES > self.budget_bytes() {
            return None;
        }
        if let Some(block) = self.try_take(units) {
            return Some(block);
        }
        self.collect();
        self.try_take(units)
    }

    fn try_take(&mut self, units: usize) -> Option<Block> {
        let unit = u32::try_from(self.buddy.take_units(units)?).expect("fewer units than u32::MAX");
        let units = u32::try_from(units).expect("fewer units than u32::MAX");
        Some(Block { home: Arc::clone(&self.home), unit, units })
    }

    /// Take back what was dropped since.
    fn collect(&mut self) {
        while let Some((unit, units)) = self.home.returned.pop() {
            self.buddy.give_units(unit as usize, units as usize);
        }
    }

    /// Bytes that could be taken, in pieces.
    pub fn free_bytes(&mut self) -> usize {
        self.collect();
        self.buddy.free_units() * UNIT_BYTES
    }

    /// Bytes of the whole pool.
    pub fn budget_bytes(&self) -> usize {
        self.home.mapping.bytes()
    }
}

/// A piece of the pool, 4096-aligned; its length is its capacity. Returns to the pool when dropped.
pub struct Block {
    home: Arc<Home>,
    unit: u32,
    units: u32,
}

impl Block {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.unit as usize * UNIT_BYTES;
        start..start + self.units as usize * UNIT_BYTES
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buddy allocator gave this range to this block alone, and it lies in the mapping.
        unsafe { self.home.mapping.slice(self.range()) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference into the range.
        unsafe { self.home.mapping.slice_mut(self.range()) }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Block({} bytes)", self.len())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let returned = self.home.returned.push((self.unit, self.units));
        assert!(returned.is_ok(), "the return queue has a slot for every unit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_writable_and_come_back_from_other_threads() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let mut blocks: Vec<Block> = (0..16).map(|_| pool.take(60_000).unwrap()).collect();
        let rest: Vec<Block> = std::iter::from_fn(|| pool.take(1)).collect();
        assert_eq!(rest.len(), 16, "of each 64 KiB a block of 15 units left one");
        drop(rest);
        for (number, block) in blocks.iter_mut().enumerate() {
            assert_eq!((block.len(), block.as_ptr() as usize % UNIT_BYTES), (61_440, 0));
            block.fill(u8::try_from(number).unwrap());
        }
        for (number, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|byte| usize::from(*byte) == number));
        }
        std::thread::spawn(move || drop(blocks)).join().unwrap();
        assert_eq!(pool.free_bytes(), 1 << 20);
        assert_eq!(pool.take(1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_block_may_outlive_its_pool() {
        let mut pool = Pool::new(1 << 16).unwrap();
        let mut block = pool.take(1).unwrap();
        drop(pool);
        block.fill(7);
        assert_eq!(block[4095], 7);
    }

    #[test]
    fn a_pool_without_a_unit_is_refused() {
        assert!(matches!(Pool::new(100), Err(PoolError::Budget(100))));
    }
}
