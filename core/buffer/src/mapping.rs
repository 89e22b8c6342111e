//! One anonymous mapping on huge pages: the only memory that blocks are cut from.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Readable and writable memory, private to this process, zero at first.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that belongs to no thread; who may touch which part is the callers' proof.
unsafe impl Send for Mapping {}
// SAFETY: as above: `slice` and `slice_mut` demand disjoint ranges from their callers.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `bytes`. Huge pages are asked for, and done without where the kernel has none.
    pub fn new(bytes: usize, touch: bool) -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        // SAFETY: the range is the mapping just made; the advice changes no content.
        let _best_effort = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        let made = Self { start, bytes };
        if touch {
            // One write a page: first touch costs ten times a re-use, so it is paid at the start.
            // SAFETY: the mapping is not shared yet.
            let memory = unsafe { made.slice_mut(0..bytes) };
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        }
        Ok(made)
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// # Safety
    /// `range` lies in the mapping, and nobody writes to it while the slice lives.
    pub unsafe fn slice(&self, range: Range<usize>) -> &[u8] {
        debug_assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: in bounds and unaliased by the caller's promise; the memory is initialised (zero pages).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// # Safety
    /// `range` lies in the mapping, and this is the only reference into it while the slice lives.
    #[allow(clippy::mut_from_ref)] // disjoint ranges of one mapping are handed out; see the promise above
    pub unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: in bounds and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it: blocks hold an `Arc` of what owns it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
