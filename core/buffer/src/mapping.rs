//! One anonymous mapping on huge pages, and the slices of it. All of the crate's `unsafe` is here.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// x86-64's and aarch64's (4 KiB granule) huge page; elsewhere only the alignment is larger than needed.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `bytes` bytes of zeroed, readable and writable memory, unmapped on drop.
pub struct Mapping {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// First usable byte, aligned to a huge page.
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; access to it goes through `bytes_of` and
// `bytes_of_mut`, whose callers promise that ranges in use are disjoint.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` alone reads nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `huge`: on huge pages where the kernel has them.
    ///
    /// # Errors
    /// The kernel's, when there is no such address space.
    pub fn new(bytes: usize, huge: bool) -> io::Result<Self> {
        let mapped_bytes =
            bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let mapped = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        let skipped_bytes = mapped.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skipped_bytes < HUGE_PAGE_BYTES`, so `base .. base + bytes` lies inside the mapping.
        let base = unsafe { mapped.add(skipped_bytes) };
        let mapping = Self { mapped, mapped_bytes, base, bytes };
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        mapping.advise(mapping.bytes, advice).ok(); // a kernel without huge pages serves small ones
        Ok(mapping)
    }

    /// Make the first `bytes` bytes resident now, so that no request pays for a first touch.
    pub fn touch(&self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        // Linux 5.14 populates in one call; before that, write one byte of each page.
        if bytes == 0 || self.advise(bytes, Advice::LinuxPopulateWrite).is_ok() {
            return;
        }
        for at in (0..bytes).step_by(crate::BLOCK_ALIGN_BYTES) {
            // SAFETY: `at < self.bytes`, and no block exists yet: `touch` runs before the pool is handed out.
            unsafe { self.base.add(at).as_ptr().write_volatile(0) };
        }
    }

    fn advise(&self, bytes: usize, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is ours, and neither advice used here changes the content of memory in use.
        unsafe { madvise(self.base.as_ptr().cast(), bytes, advice)? };
        Ok(())
    }

    /// # Safety
    /// `at + bytes` is at most the mapping's length, and nobody writes the range meanwhile.
    pub unsafe fn bytes_of(&self, at: usize, bytes: usize) -> &[u8] {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: in bounds by the caller's promise; the memory is mapped as long as `self` lives, and
        // initialised because anonymous memory starts as zeros.
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), bytes) }
    }

    /// # Safety
    /// `at + bytes` is at most the mapping's length, and the caller alone uses the range meanwhile.
    #[allow(clippy::mut_from_ref, reason = "disjoint ranges of one mapping, each with one owner")]
    pub unsafe fn bytes_of_mut(&self, at: usize, bytes: usize) -> &mut [u8] {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: as in `bytes_of`, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(at).as_ptr(), bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the very range that `new` mapped; every block keeps the mapping alive, so none is left.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
